import Glibc
import Reactor
import ReactorCoreFoundation
import ReactorTesting
import SystemPackage
import Testing

/// Streams that connect through a proxy.
@Suite(.runLoop) struct ProxyStreamTests {
    private static let granted: [UInt8] = [5, 0, 0, 1, 127, 0, 0, 1, 0, 80]

    @Test(arguments: [true, false])
    func `a connection goes through the proxy, which gets the host's name`(isScheduled: Bool) throws {
        let server = try SocketServer()
        let (input, output) = Stream.connection(toHost: "name.that.no.resolver.has.invalid", port: 7)
        output.proxy = StreamProxy(.socks5, host: "localhost", port: server.port)
        #expect(input.proxy == output.proxy)
        let recorder = Recorder()
        for stream in [input, output] as [Stream] {
            if isScheduled { stream.start(recorder) } else { stream.open() }
        }
        let proxy = try server.accept()
        #expect(proxy.receive(3) == [5, 1, 0])
        proxy.send([5, 0])
        let name = Array("name.that.no.resolver.has.invalid".utf8)
        #expect(proxy.receive(7 + name.count) == [5, 1, 0, 3, UInt8(name.count)] + name + [0, 7])
        #expect(input.streamStatus == .opening)
        // The host's first bytes follow the reply at once.
        proxy.send(Self.granted + [1, 2, 3])
        if isScheduled { RunLoop.current.serve { recorder.count(.hasBytesAvailable) > 0 } }
        #expect(input.read(upTo: 10) == [1, 2, 3])
        #expect(output.write([4]) == 1)
        #expect(proxy.receive(1) == [4])
        #expect(
            input.property(forKey: .socketRemoteHostNameKey) as? String
                == "name.that.no.resolver.has.invalid")
        for stream in [input, output] as [Stream] { stream.close() }
    }

    @Test func `a protected connection begins its handshake behind the proxy`() throws {
        let server = try SocketServer()
        let (input, output) = Stream.connection(toHost: "example.invalid", port: 7)
        input.proxy = StreamProxy(.http, host: "127.0.0.1", port: server.port)
        #expect(input.protect(by: MaskingSecurity()))
        for stream in [input, output] as [Stream] { stream.open() }
        let proxy = try server.accept()
        var head: [UInt8] = []
        while !head.suffix(4).elementsEqual([13, 10, 13, 10]) { head += proxy.receive(1) }
        #expect(String(decoding: head, as: UTF8.self).hasPrefix("CONNECT example.invalid:7 HTTP/1.1\r\n"))
        proxy.send(Array("HTTP/1.1 200 OK\r\n\r\n".utf8))
        proxy.answerHello()
        #expect(output.write([4]) == 1)
        #expect(proxy.receiveRecord()?.bytes == [4])
        for stream in [input, output] as [Stream] { stream.close() }
    }

    @Test func `a connection can be protected while the proxy connects`() throws {
        let server = try SocketServer()
        let (input, output) = Stream.connection(toHost: "example.invalid", port: 7)
        input.proxy = StreamProxy(.socks5, host: "127.0.0.1", port: server.port)
        for stream in [input, output] as [Stream] { stream.open() }
        let proxy = try server.accept()
        #expect(proxy.receive(3) == [5, 1, 0])
        #expect(input.protect(by: MaskingSecurity()))
        #expect(!output.protect(by: MaskingSecurity()))
        proxy.send([5, 0])
        #expect(proxy.receive(22).count == 22)
        #expect(input.streamStatus == .opening)
        proxy.send(Self.granted)
        proxy.answerHello()
        #expect(output.write([4]) == 1)
        #expect(proxy.receiveRecord()?.bytes == [4])
        for stream in [input, output] as [Stream] { stream.close() }
    }

    @Test func `an error names the host, the proxy and the reason`() throws {
        let server = try SocketServer()
        let (input, output) = Stream.connection(toHost: "example.invalid", port: 7)
        input.proxy = StreamProxy(.socks5, host: "127.0.0.1", port: server.port)
        let recorder = Recorder()
        for stream in [input, output] as [Stream] { stream.start(recorder) }
        let proxy = try server.accept()
        proxy.send([5, 0, 5, 5, 0, 1, 0, 0, 0, 0, 0, 0])
        RunLoop.current.serve { recorder.count(.errorOccurred) == 2 }
        for stream in [input, output] as [Stream] {
            let error = try #require(stream.streamError as? StreamProxyError)
            #expect(
                "\(error)"
                    == "connect to example.invalid:7 through 127.0.0.1:\(server.port): connection refused"
            )
        }
        #expect(recorder.events == [.errorOccurred, .errorOccurred])
    }

    @Test func `a proxy that cannot be reached is named`() throws {
        let refusing = try refusingAddress()
        let (input, output) = Stream.connection(to: .ipv4Loopback(port: 9))
        input.proxy = StreamProxy(.socks4, host: "127.0.0.1", port: try #require(refusing.port))
        let recorder = Recorder()
        input.start(recorder)
        RunLoop.current.serve { !recorder.events.isEmpty }
        #expect(
            input.streamError as? IOError
                == IOError(.connect, "the proxy \(refusing)", .connectionRefused))
        withExtendedLifetime(output) {}
    }

    @Test(arguments: [true, false])
    func `a proxy that is silent, or does not accept, is named when the time is up`(accepts: Bool)
        async throws
    {
        try await onItsOwnThread {
            let (server, full) = (try SocketServer(), try FullServer())
            let address = accepts ? server.address : full.address
            let (input, output) = Stream.connection(toHost: "example.invalid", port: 9)
            input.proxy = StreamProxy(.socks4, host: "127.0.0.1", port: try #require(address.port))
            input.connectTimeout = .milliseconds(20)
            let recorder = Recorder()
            for stream in [input, output] as [Stream] { stream.start(recorder) }
            RunLoop.current.serve { recorder.count(.errorOccurred) == 2 }
            for stream in [input, output] as [Stream] {
                #expect(
                    stream.streamError as? IOError == IOError(.connect, "the proxy \(address)", .timedOut))
            }
        }
    }

    @Test func `an upgrade of a half that was not open asks the proxy nothing again`() throws {
        let server = try SocketServer()
        let (input, output) = Stream.connection(toHost: "example.invalid", port: 7)
        input.proxy = StreamProxy(
            .socks5, host: "127.0.0.1", port: server.port, user: "me", password: "secret")
        input.open()
        let proxy = try server.accept()
        #expect(proxy.receive(4) == [5, 2, 0, 2])
        proxy.send([5, 0])
        #expect(proxy.receive(22).count == 22)
        proxy.send(Self.granted)
        waitUntil { input.streamStatus != .opening }
        #expect(input.streamStatus == .open)
        input.close()
        #expect(output.protect(by: MaskingSecurity()))
        output.open()
        #expect(proxy.receive(3) == Masking.record(.hello))
        proxy.send(Masking.record(.hello))
        #expect(output.write([4]) == 1)
        #expect(proxy.receiveRecord()?.bytes == [4])
        output.close()
    }

    @Test func `a proxy that sends interim responses without end fails the connection`() throws {
        let server = try SocketServer()
        let (input, output) = Stream.connection(toHost: "example.invalid", port: 7)
        input.proxy = StreamProxy(.http, host: "127.0.0.1", port: server.port)
        for stream in [input, output] as [Stream] { stream.open() }
        let proxy = try server.accept()
        let interim = Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)
        while input.streamStatus == .opening { proxy.send(interim, flags: CInt(MSG_DONTWAIT)) }
        #expect((input.streamError as? StreamProxyError)?.reason == .notAProxy)
        for stream in [input, output] as [Stream] { stream.close() }
    }

    @Test func `a proxy shows its user and not its password`() {
        let proxy = StreamProxy(.socks5, host: "::1", port: 1080, user: "me", password: "secret")
        #expect("\(proxy)" == "socks5://me@[::1]:1080")
        var dumped = ""
        dump(["proxy": proxy], to: &dumped)
        for text in ["\([proxy])", String(reflecting: proxy), String(describing: [proxy]), dumped] {
            #expect(text.contains("me") && !text.contains("secret"))
        }
    }

    @Test func `Cocoa's dictionary is a proxy, whole or not at all`() throws {
        typealias Key = StreamSOCKSProxyConfiguration
        let whole: [Key: Any] = [
            .hostKey: "proxy", .portKey: 1080, .versionKey: StreamSOCKSProxyVersion.version4, .userKey: "me",
            .passwordKey: "secret",
        ]
        let (input, output) = Stream.connection(toHost: "example.invalid", port: 7)
        #expect(input.setProperty(whole, forKey: .socksProxyConfigurationKey))
        #expect(
            output.proxy == StreamProxy(.socks4, host: "proxy", port: 1080, user: "me", password: "secret"))
        let copy = output.property(forKey: .socksProxyConfigurationKey) as? [String: Any]
        #expect(copy?.count == 5 && copy?["SOCKSPort"] as? Int == 1080)
        #expect(
            input.setProperty(["SOCKSProxy": "p", "SOCKSPort": "80"], forKey: .socksProxyConfigurationKey))
        #expect(output.proxy == StreamProxy(.socks5, host: "p", port: 80))
        let bad: [[String: Any]] = [
            [:], ["SOCKSProxy": "p"], ["SOCKSPort": 80], ["SOCKSProxy": "p", "SOCKSPort": 70_000],
            ["SOCKSProxy": "p", "SOCKSPort": 80, "unknown": 1], ["SOCKSProxy": 5, "SOCKSPort": 80],
            ["SOCKSProxy": "p", "SOCKSPort": 80, "kCFStreamPropertySOCKSVersion": 5],
            ["SOCKSProxy": "p", "SOCKSPort": 80, "kCFStreamPropertySOCKSUser": 5],
        ]
        for dictionary in bad {
            let (input, output) = Stream.connection(toHost: "example.invalid", port: 7)
            #expect(input.setProperty(dictionary, forKey: .socksProxyConfigurationKey))
            output.open()
            #expect(output.streamError as? StreamRequirementError == .proxyUnavailable)
        }
    }

    @Test func `closing during the negotiation ends it`() throws {
        let server = try SocketServer()
        let (input, output) = Stream.connection(toHost: "example.invalid", port: 7)
        input.proxy = StreamProxy(.socks5, host: "127.0.0.1", port: server.port)
        let recorder = Recorder()
        for stream in [input, output] as [Stream] { stream.start(recorder) }
        let proxy = try server.accept()
        #expect(proxy.receive(3).count == 3)
        for stream in [input, output] as [Stream] { stream.close() }
        #expect(proxy.receiveToEnd() == [])
        #expect(recorder.events.isEmpty)
    }
}
