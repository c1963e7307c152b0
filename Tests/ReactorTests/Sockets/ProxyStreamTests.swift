import Glibc
import Reactor
import ReactorFoundation
import ReactorTesting
import SystemPackage
import Testing

/// Streams that connect through a proxy.
@Suite(.runLoop) struct ProxyStreamTests {
    private static let granted: [UInt8] = [5, 0, 0, 1, 127, 0, 0, 1, 0, 80]
    private static let host = "name.that.no.resolver.has.invalid"

    private let recorder = Recorder()
    private let server: SocketServer
    private let input: InputStream
    private let output: OutputStream

    init() throws {
        server = try SocketServer()
        (input, output) = Connection(toHost: Self.host, port: 7).streams
    }

    private var streams: [Stream] { [input, output] }

    /// Sets a proxy at the server, or at `address`, and opens the streams.
    private func open(
        _ kind: StreamProxy.Kind = .socks5, at address: SocketAddress? = nil, isProtected: Bool = false,
        isScheduled: Bool = true
    ) throws {
        let port = try #require((address ?? server.address).port)
        let version = kind == .socks4 ? StreamSOCKSProxyVersion.version4 : .version5
        let proxy: [StreamSOCKSProxyConfiguration: Any] = [
            .hostKey: "127.0.0.1", .portKey: Int(port), .versionKey: version,
        ]
        #expect(output.setProperty(proxy, forKey: .socksProxyConfigurationKey))
        if isProtected { #expect(input.protect(by: MaskingSecurity())) }
        for stream in streams { if isScheduled { stream.start(recorder) } else { stream.open() } }
    }

    /// The proxy, after it has received the host's name.
    private func acceptRequest() throws -> SocketPeer {
        let proxy = try server.accept()
        #expect(proxy.receive(3) == [5, 1, 0])
        proxy.send([5, 0])
        let name = Array(Self.host.utf8)
        #expect(proxy.receive(7 + name.count) == [5, 1, 0, 3, UInt8(name.count)] + name + [0, 7])
        return proxy
    }

    /// Answers as the protected host.
    private func checkProtected(_ proxy: SocketPeer) {
        proxy.answerHello()
        #expect(output.write([4]) == 1)
        #expect(proxy.receiveRecord()?.bytes == [4])
    }

    @Test(arguments: [true, false])
    func `a connection goes through the proxy, which gets the host's name`(isScheduled: Bool) throws {
        try open(isScheduled: isScheduled)
        let proxy = try acceptRequest()
        #expect(input.streamStatus == .opening)
        // The host's first bytes follow the reply at once.
        proxy.send(Self.granted + [1, 2, 3])
        if isScheduled { RunLoop.current.serve { recorder.count(.hasBytesAvailable) > 0 } }
        #expect(input.read(upTo: 10) == [1, 2, 3])
        #expect(output.write([4]) == 1)
        #expect(proxy.receive(1) == [4])
        #expect(input.property(forKey: .socketRemoteHostNameKey) as? String == Self.host)
    }

    // MARK: Protection

    @Test(arguments: [true, false])
    func `a protected connection begins its handshake behind the proxy`(isEarly: Bool) throws {
        try open(isProtected: isEarly, isScheduled: false)
        let proxy = try acceptRequest()
        if !isEarly { #expect(input.protect(by: MaskingSecurity())) }
        #expect(!output.protect(by: MaskingSecurity()))
        #expect(input.streamStatus == .opening)
        proxy.send(Self.granted)
        checkProtected(proxy)
    }

    // MARK: Failures

    @Test func `an error names the host, the proxy and the reason`() throws {
        try open()
        let proxy = try acceptRequest()
        proxy.send([5, 5, 0, 1, 0, 0, 0, 0, 0, 0])
        RunLoop.current.serve { recorder.count(.errorOccurred) == 2 }
        for stream in streams {
            let error = try #require(stream.streamError as? IOError)
            #expect(error.reason == .proxy(code: 113, "connection refused") && error.operation == "connect")
            #expect(
                error.subject.contains("\(Self.host):7") && error.subject.contains("127.0.0.1:\(server.port)")
            )
        }
        #expect(recorder.events == [.errorOccurred, .errorOccurred])
        withExtendedLifetime(proxy) {}
    }

    enum Silence: CaseIterable { case refuses, accepts, isFull }

    @Test(arguments: Silence.allCases)
    func `a proxy that cannot be reached, or is silent, is named`(silence: Silence) throws {
        try withVirtualTime { _ in
            let full = try FullServer()
            let address =
                switch silence {
                case .refuses: refusingAddress()
                case .accepts: server.address
                case .isFull: full.address
                }
            try open(.socks4, at: address)
            RunLoop.current.serve { recorder.count(.errorOccurred) == 2 }
            let error = IOError(
                .connect, "the proxy \(address)", silence == .refuses ? .connectionRefused : .timedOut)
            for stream in streams { #expect(stream.streamError as? IOError == error) }
        }
    }

    // MARK: Configuration

    @Test func `a Unix-domain address cannot be reached through a proxy, and an existing socket ignores one`()
        async throws
    {
        let listening = try SocketServer(.path)
        let address = listening.address
        let proxy = StreamProxy(.socks5, host: "127.0.0.1", port: server.port)
        let error = await thrownError {
            _ = try await Connection.connect(to: address, options: .init(proxy: proxy))
        }
        #expect((error as? IOError)?.reason == .proxyUnavailable && !listening.hasPendingConnection)
        let (peer, other) = try SocketPeer.pair()
        let connection = Connection(descriptor: other, options: .init(proxy: proxy))
        try await connection.write("plain")
        #expect(peer.receive(5) == Array("plain".utf8))
        #expect(!server.hasPendingConnection)
        connection.close()
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
        #expect(input.setProperty(whole, forKey: .socksProxyConfigurationKey))
        let copy = try #require(output.property(forKey: .socksProxyConfigurationKey) as? [String: Any])
        for (key, value) in whole {
            let text = (value as? StreamSOCKSProxyVersion)?.rawValue ?? "\(value)"
            #expect("\(copy[key.rawValue] ?? "")" == text)
        }
        #expect(
            input.setProperty(["SOCKSProxy": "p", "SOCKSPort": "80"], forKey: .socksProxyConfigurationKey))
        let other = output.property(forKey: .socksProxyConfigurationKey) as? [String: Any]
        #expect(other?["SOCKSProxy"] as? String == "p" && other?["SOCKSPort"] as? Int == 80)
        let bad: [[String: Any]] = [
            [:], ["SOCKSProxy": "p"], ["SOCKSPort": 80], ["SOCKSProxy": "p", "SOCKSPort": 70_000],
            ["SOCKSProxy": "p", "SOCKSPort": 80, "unknown": 1], ["SOCKSProxy": 5, "SOCKSPort": 80],
            ["SOCKSProxy": "p", "SOCKSPort": 80, "kCFStreamPropertySOCKSVersion": 5],
            ["SOCKSProxy": "p", "SOCKSPort": 80, "kCFStreamPropertySOCKSUser": 5],
        ]
        for dictionary in bad {
            let (input, output) = Connection(toHost: "example.invalid", port: 7).streams
            #expect(input.setProperty(dictionary, forKey: .socksProxyConfigurationKey))
            output.open()
            #expect((output.streamError as? IOError)?.reason == .proxyUnavailable)
        }
    }
}
