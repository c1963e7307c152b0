import Glibc
import Reactor
import ReactorCoreFoundation
import ReactorTesting
import SystemPackage
import Testing

/// The properties of socket streams, by key and typed.
@Suite(.runLoop) struct SocketStreamPropertyTests {
    @Test func `Cocoa's keys have Cocoa's names`() {
        let names: [(Stream.PropertyKey, String)] = [
            (.shouldCloseNativeSocketKey, "kCFStreamPropertyShouldCloseNativeSocket"),
            (.socketRemoteHostNameKey, "kCFStreamPropertySocketRemoteHostName"),
            (.socketRemotePortNumberKey, "kCFStreamPropertySocketRemotePortNumber"),
        ]
        for (key, name) in names { #expect(key.rawValue == name) }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `the peer's address is known as far as possible, also after closing`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        let address = fixture.server?.address
        func check(isConnected: Bool) {
            for stream in fixture.streams {
                let host = stream.property(forKey: .socketRemoteHostNameKey) as? String
                let port = stream.property(forKey: .socketRemotePortNumberKey) as? Int
                #expect(port == address?.port.map { Int($0) })
                #expect(host == (origin == .host ? "localhost" : address?.host))
                guard origin != .descriptor, origin != .host || isConnected else { continue }
                #expect(stream.property(forKey: .socketRemoteAddressKey) as? SocketAddress == address)
                #expect(stream.peerAddress == address)
            }
        }
        check(isConnected: false)
        try fixture.openBoth()
        check(isConnected: true)
        fixture.closeBoth()
        check(isConnected: true)
    }

    @Test func `the peer of a descriptor is found out`() throws {
        let server = try SocketServer()
        let client = try SocketPeer(connectedTo: server.address)
        let pair = Stream.connection(descriptor: client.descriptor)
        #expect(pair.input.property(forKey: .socketRemoteHostNameKey) as? String == "127.0.0.1")
        #expect(pair.output.property(forKey: .socketRemotePortNumberKey) as? Int == Int(server.port))
        #expect(pair.output.peerAddress == server.address)
    }

    @Test(arguments: SocketOrigin.allCases, [nil, true, false])
    func `the socket is known until both halves close, and closed if it is owned`(
        origin: SocketOrigin, wish: Bool?
    ) throws {
        let (fixture, key) = (try SocketFixture(origin), Stream.PropertyKey.shouldCloseNativeSocketKey)
        for stream in fixture.streams { #expect((stream.socketDescriptor == nil) == (origin != .descriptor)) }
        #expect(fixture.input.property(forKey: key) as? Bool == true)
        if let wish { #expect(fixture.input.setProperty(wish, forKey: key)) }
        #expect(fixture.output.property(forKey: key) as? Bool == wish ?? true)
        #expect(!fixture.input.setProperty("yes", forKey: key))
        try fixture.openBoth()
        let descriptor = try #require(fixture.input.socketDescriptor)
        #expect(fixture.output.property(forKey: .socketDescriptorKey) as? FileDescriptor == descriptor)
        let address = try SocketAddress.local(of: descriptor)
        #expect(fixture.input.localAddress == address)
        #expect(fixture.output.property(forKey: .socketLocalAddressKey) as? SocketAddress == address)
        fixture.input.close()
        for stream in fixture.streams { #expect(stream.socketDescriptor == descriptor) }
        #expect(fixture.output.write([1]) == 1)
        fixture.output.close()
        for stream in fixture.streams {
            #expect(stream.socketDescriptor == nil && stream.localAddress == nil)
        }
        if wish == false {
            #expect(try SocketAddress.local(of: descriptor) == address)
            try descriptor.close()
        }
        #expect(try fixture.peer.receiveToEnd() == [1])
    }

    // MARK: Options

    @Test(arguments: [SocketOrigin.ipv4, .ipv6], [true, false])
    func `options apply to the socket, also when set before`(origin: SocketOrigin, isOn: Bool) throws {
        let options: [(key: Stream.PropertyKey, level: CInt, name: CInt)] = [
            (.socketNoDelayKey, CInt(IPPROTO_TCP), TCP_NODELAY),
            (.socketKeepAliveKey, SOL_SOCKET, SO_KEEPALIVE),
        ]
        let fixture = try SocketFixture(origin)
        let output = fixture.output!
        #expect(!output.noDelay && !output.keepAlive)
        for (key, _, _) in options {
            #expect(output.property(forKey: key) == nil)
            #expect(output.setProperty(isOn, forKey: key))
            #expect(!output.setProperty(1, forKey: key) && !output.setProperty(nil, forKey: key))
        }
        #expect(fixture.input.noDelay == isOn && fixture.input.keepAlive == isOn)
        try fixture.openBoth()
        let descriptor = try #require(fixture.input.socketDescriptor)
        for (key, level, name) in options {
            #expect((descriptor.socketOption(level, name) != 0) == isOn)
            #expect(fixture.input.setProperty(!isOn, forKey: key))
            #expect((descriptor.socketOption(level, name) != 0) == !isOn)
            #expect(output.property(forKey: key) as? Bool == !isOn)
        }
    }

    @Test func `options that were not set are left alone`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        let descriptor = try #require(fixture.input.socketDescriptor)
        var isOn: CInt = 1
        let size = socklen_t(MemoryLayout<CInt>.size)
        setsockopt(descriptor.rawValue, CInt(IPPROTO_TCP), TCP_NODELAY, &isOn, size)
        fixture.input.keepAlive = true
        #expect(descriptor.socketOption(CInt(IPPROTO_TCP), TCP_NODELAY) != 0)
    }

    @Test(arguments: [SocketOrigin.ipv4, .ipv6], [true, false])
    func `a service type marks the packets`(origin: SocketOrigin, isOpen: Bool) throws {
        let fixture = try SocketFixture(origin)
        #expect(fixture.input.property(forKey: .networkServiceType) == nil)
        if isOpen { try fixture.openBoth() }
        #expect(!fixture.input.setProperty("fast", forKey: .networkServiceType))
        #expect(
            fixture.input.setProperty(StreamNetworkServiceTypeValue.voice, forKey: .networkServiceType))
        if !isOpen { try fixture.openBoth() }
        let (level, name) = origin == .ipv6 ? (IPPROTO_IPV6, IPV6_TCLASS) : (IPPROTO_IP, IP_TOS)
        #expect(fixture.output.socketDescriptor?.socketOption(CInt(level), name) == 46 << 2)
        let type = fixture.output.property(forKey: .networkServiceType) as? String
        #expect(type == StreamNetworkServiceTypeValue.voice.rawValue)
    }

    @Test func `timeouts are positive durations, which both halves share`() throws {
        let fixture = try SocketFixture()
        let (input, output) = (fixture.input!, fixture.output!)
        let keys: [Stream.PropertyKey] = [
            .socketConnectTimeoutKey, .socketIdleTimeoutKey, .socketWriteTimeoutKey,
        ]
        #expect(input.connectTimeout == .seconds(75) && input.idleTimeout == nil && input.writeTimeout == nil)
        for key in keys {
            let before = input.property(forKey: key) as? Duration
            for value in [Duration.zero, Duration.seconds(-1), 5, "5", 1.5, true] as [Any] {
                #expect(!input.setProperty(value, forKey: key))
            }
            #expect(input.property(forKey: key) as? Duration == before)
            #expect(input.setProperty(Duration.seconds(5), forKey: key))
            #expect(output.property(forKey: key) as? Duration == .seconds(5))
            // There is always an end to connecting.
            #expect(output.setProperty(nil, forKey: key) == (key != .socketConnectTimeoutKey))
        }
        (input.connectTimeout, output.idleTimeout, input.writeTimeout) = (
            .seconds(9), .seconds(10), .seconds(11)
        )
        #expect(output.connectTimeout == .seconds(9) && input.idleTimeout == .seconds(10))
        #expect(output.writeTimeout == .seconds(11))
        output.idleTimeout = nil
        #expect(output.property(forKey: .socketIdleTimeoutKey) == nil && input.idleTimeout == nil)
        try fixture.openBoth()
        // For the handshake of TLS that starts on the open stream.
        #expect(output.setProperty(Duration.seconds(6), forKey: .socketConnectTimeoutKey))
        #expect(output.setProperty(Duration.seconds(6), forKey: .socketIdleTimeoutKey))
        #expect(output.setProperty(Duration.seconds(Int64.max), forKey: .socketIdleTimeoutKey))
    }

    @Test func `writeBufferSize is 0 by default, and not negative`() throws {
        let output = try SocketFixture().output!
        #expect(output.writeBufferSize == 0)
        for value in [-1, "1", 1.5, nil] as [Any?] {
            #expect(!output.setProperty(value, forKey: .writeBufferSizeKey))
        }
        #expect(output.property(forKey: .writeBufferSizeKey) as? Int == 0)
        #expect(output.setProperty(UInt16(7), forKey: .writeBufferSizeKey))
        #expect(output.writeBufferSize == 7)
    }

    @Test func `a stream that is not a socket's has no options, and a bound pair ignores them`() {
        let input = InputStream(data: [1])
        #expect(input.connectTimeout == nil && input.idleTimeout == nil && !input.noDelay && !input.keepAlive)
        #expect(input.peerAddress == nil && input.localAddress == nil && input.socketDescriptor == nil)
        let pair = Stream.boundPair(bufferSize: 4)
        for stream in [pair.input, pair.output] as [Stream] {
            stream.connectTimeout = .seconds(1)
            (stream.idleTimeout, stream.writeTimeout) = (.seconds(1), nil)
            (stream.noDelay, stream.keepAlive) = (true, true)
            stream.proxy = StreamProxy(.socks5, host: "localhost", port: 1080)
            #expect(stream.connectTimeout == nil && !stream.noDelay && stream.proxy == nil)
            stream.open()
        }
        #expect(pair.output.write([1]) == 1 && pair.input.read(upTo: 1) == [1])
    }

    @Test func `setting an option traps where it has no effect`() async {
        await #expect(processExitsWith: .failure) { InputStream(data: [1]).noDelay = true }
        await #expect(processExitsWith: .failure) {
            Stream.connection(to: .ipv4Loopback(port: 9)).input.idleTimeout = .zero
        }
    }
}
