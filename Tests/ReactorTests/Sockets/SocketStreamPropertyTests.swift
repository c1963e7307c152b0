import Glibc
import Reactor
import ReactorCoreFoundation
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamPropertyTests {
    private func option(_ name: CInt, _ level: CInt, of number: CInt) -> Bool {
        var (value, size) = (CInt(0), socklen_t(MemoryLayout<CInt>.size))
        getsockopt(number, level, name, &value, &size)
        return value != 0
    }

    @Test func `Cocoa's keys have Cocoa's names`() {
        let names: [(Stream.PropertyKey, String)] = [
            (.socketSecurityLevelKey, "kCFStreamPropertySocketSecurityLevel"),
            (.socksProxyConfigurationKey, "kCFStreamPropertySOCKSProxy"),
            (.networkServiceType, "kCFStreamNetworkServiceType"),
            (.shouldCloseNativeSocketKey, "kCFStreamPropertyShouldCloseNativeSocket"),
            (.socketRemoteHostNameKey, "kCFStreamPropertySocketRemoteHostName"),
            (.socketRemotePortNumberKey, "kCFStreamPropertySocketRemotePortNumber"),
        ]
        for (key, name) in names { #expect(key.rawValue == name) }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `the descriptor is known while the socket exists`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        func handle(_ stream: Stream) -> CInt? {
            (stream.property(forKey: .socketDescriptorKey) as? FileDescriptor)?.rawValue
        }
        for stream in fixture.streams { #expect((handle(stream) == nil) == (origin != .descriptor)) }
        try fixture.openBoth()
        let number = try #require(handle(fixture.input))
        #expect(handle(fixture.output) == number)
        let address = try SocketAddress.local(of: FileDescriptor(rawValue: number))
        #expect(fixture.input.property(forKey: .socketLocalAddressKey) as? SocketAddress == address)
        fixture.input.close()
        #expect(handle(fixture.output) == number && handle(fixture.input) == number)
        fixture.output.close()
        #expect(handle(fixture.output) == nil && handle(fixture.input) == nil)
        #expect(fixture.output.property(forKey: .socketLocalAddressKey) == nil)
    }

    @Test(arguments: SocketOrigin.allCases)
    func `the peer's address is known as far as possible, also after closing`(origin: SocketOrigin)
        throws
    {
        let fixture = try SocketFixture(origin)
        let address = fixture.server?.address
        func check(_ stream: Stream, isConnected: Bool) {
            let host = stream.property(forKey: .socketRemoteHostNameKey) as? String
            let port = stream.property(forKey: .socketRemotePortNumberKey) as? Int
            #expect(port == address?.port.map { Int($0) })
            #expect(host == (origin == .host ? "localhost" : address?.host))
            guard origin != .descriptor, origin != .host || isConnected else { return }
            #expect(stream.property(forKey: .socketRemoteAddressKey) as? SocketAddress == address)
        }
        for stream in fixture.streams { check(stream, isConnected: false) }
        try fixture.openBoth()
        for stream in fixture.streams { check(stream, isConnected: true) }
        fixture.closeBoth()
        for stream in fixture.streams { check(stream, isConnected: true) }
    }

    @Test func `the peer of a descriptor is found out`() throws {
        let server = try SocketServer()
        let client = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        try SystemCall.make { server.address.withSockAddr { connect(client, $0, $1) } }
        let pair = Stream.connection(descriptor: FileDescriptor(rawValue: client), closeWhenDone: true)
        #expect(pair.input.property(forKey: .socketRemoteHostNameKey) as? String == "127.0.0.1")
        #expect(pair.output.property(forKey: .socketRemotePortNumberKey) as? Int == Int(server.port))
        #expect(pair.output.property(forKey: .socketRemoteAddressKey) as? SocketAddress == server.address)
    }

    @Test(arguments: SocketOrigin.allCases, [nil, true, false])
    func `closing both halves closes the socket if it is owned`(origin: SocketOrigin, wish: Bool?) throws {
        let fixture = try SocketFixture(origin)
        let key = Stream.PropertyKey.shouldCloseNativeSocketKey
        #expect(fixture.input.property(forKey: key) as? Bool == true)
        if let wish {
            #expect(fixture.input.setProperty(wish, forKey: key))
            #expect(fixture.output.property(forKey: key) as? Bool == wish)
        }
        #expect(!fixture.input.setProperty("yes", forKey: key))
        try fixture.openBoth()
        let number = try #require(
            (fixture.input.property(forKey: .socketDescriptorKey) as? FileDescriptor)?.rawValue)
        fixture.input.close()
        #expect(fixture.output.write([1]) == 1)
        fixture.output.close()
        if wish == false {
            #expect(try SocketAddress.local(of: FileDescriptor(rawValue: number)).family != .unspecified)
            close(number)
        }
        #expect(try fixture.peer.receiveToEnd() == [1])
    }

    @Test(arguments: [SocketOrigin.ipv4, .ipv6])
    func `options apply to the socket, set before or after it exists`(origin: SocketOrigin) throws {
        let options: [(key: Stream.PropertyKey, level: CInt, name: CInt)] = [
            (.socketNoDelayKey, CInt(IPPROTO_TCP), TCP_NODELAY),
            (.socketKeepAliveKey, SOL_SOCKET, SO_KEEPALIVE),
        ]
        for isOn in [true, false] {
            let fixture = try SocketFixture(origin)
            for (key, _, _) in options {
                #expect(fixture.output.property(forKey: key) == nil)
                #expect(fixture.output.setProperty(isOn, forKey: key))
                #expect(
                    !fixture.output.setProperty(1, forKey: key)
                        && !fixture.output.setProperty(nil, forKey: key))
            }
            try fixture.openBoth()
            let number = try #require(
                (fixture.input.property(forKey: .socketDescriptorKey) as? FileDescriptor)?.rawValue)
            for (key, level, name) in options {
                #expect(option(name, level, of: number) == isOn)
                #expect(fixture.input.setProperty(!isOn, forKey: key))
                #expect(option(name, level, of: number) == !isOn)
                #expect(fixture.output.property(forKey: key) as? Bool == !isOn)
            }
        }
    }

    @Test func `options that were not set are left alone`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        let number = try #require(
            (fixture.input.property(forKey: .socketDescriptorKey) as? FileDescriptor)?.rawValue)
        var isOn: CInt = 1
        setsockopt(number, CInt(IPPROTO_TCP), TCP_NODELAY, &isOn, socklen_t(MemoryLayout<CInt>.size))
        #expect(fixture.input.setProperty(true, forKey: .socketKeepAliveKey))
        #expect(option(TCP_NODELAY, CInt(IPPROTO_TCP), of: number))
    }

    @Test func `timeouts must be positive durations`() throws {
        let fixture = try SocketFixture()
        let keys: [Stream.PropertyKey] = [
            .socketConnectTimeoutKey, .socketIdleTimeoutKey, .socketWriteTimeoutKey,
        ]
        #expect(fixture.input.property(forKey: keys[0]) as? Duration == .seconds(75))
        for key in keys {
            let before = fixture.input.property(forKey: key) as? Duration
            for value in [Duration.zero, Duration.seconds(-1), 5, "5", 1.5, true] as [Any] {
                #expect(!fixture.input.setProperty(value, forKey: key))
            }
            #expect(fixture.input.property(forKey: key) as? Duration == before)
            #expect(fixture.input.setProperty(Duration.seconds(5), forKey: key))
            #expect(fixture.output.property(forKey: key) as? Duration == .seconds(5))
            // There is always an end to connecting.
            #expect(fixture.output.setProperty(nil, forKey: key) == (key != .socketConnectTimeoutKey))
        }
        #expect(fixture.output.property(forKey: .socketIdleTimeoutKey) == nil)
        try fixture.openBoth()
        // For the handshake of TLS that starts on the open stream.
        #expect(fixture.output.setProperty(Duration.seconds(6), forKey: .socketConnectTimeoutKey))
        #expect(fixture.output.setProperty(Duration.seconds(6), forKey: .socketIdleTimeoutKey))
        #expect(fixture.output.setProperty(Duration.seconds(Int64.max), forKey: .socketIdleTimeoutKey))
    }

    @Test func `writeBufferSize is 0 by default, and not negative`() throws {
        let fixture = try SocketFixture()
        #expect(fixture.output.writeBufferSize == 0)
        for value in [-1, "1", 1.5, nil] as [Any?] {
            #expect(!fixture.output.setProperty(value, forKey: .writeBufferSizeKey))
        }
        #expect(fixture.output.property(forKey: .writeBufferSizeKey) as? Int == 0)
        #expect(fixture.output.setProperty(UInt16(7), forKey: .writeBufferSizeKey))
        #expect(fixture.output.writeBufferSize == 7)
    }
}
