import Glibc
import Reactor
import ReactorFoundation
import ReactorTesting
import SystemPackage
import Testing

/// The properties of socket streams, by key and typed.
@Suite(.runLoop) struct SocketStreamPropertyTests {
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
        guard let address, address.port != nil else { return }
        let client = try SocketPeer(connectedTo: address)
        #expect(Stream.connection(descriptor: client.descriptor).output.peerAddress == address)
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
    func `a service type applies to the socket, whether it is open or not`(
        origin: SocketOrigin, isOpen: Bool
    ) throws {
        let (level, name) =
            origin == .ipv6 ? (CInt(IPPROTO_IPV6), IPV6_TCLASS) : (CInt(IPPROTO_IP), IP_TOS)
        let voice = StreamNetworkServiceTypeValue.voice.rawValue
        let fixture = try SocketFixture(origin)
        if isOpen { try fixture.openBoth() }
        #expect(fixture.input.property(forKey: .networkServiceType) == nil)
        #expect(!fixture.input.setProperty("fast", forKey: .networkServiceType))
        #expect(fixture.input.setProperty(voice, forKey: .networkServiceType))
        if !isOpen { try fixture.openBoth() }
        let descriptor = try #require(fixture.output.socketDescriptor)
        #expect(descriptor.socketOption(level, name) == 46 << 2)
        #expect(fixture.output.property(forKey: .networkServiceType) as? String == voice)
    }

    @Test func `timeouts are positive durations, a buffer size is not negative, and both halves share them`()
        throws
    {
        let fixture = try SocketFixture()
        let (input, output) = (fixture.input!, fixture.output!)
        #expect(input.connectTimeout == .seconds(75) && input.idleTimeout == nil && input.writeTimeout == nil)
        #expect(output.writeBufferSize == 0)
        let keys: [Stream.PropertyKey] = [
            .socketConnectTimeoutKey, .socketIdleTimeoutKey, .socketWriteTimeoutKey,
        ]
        for isOpen in [false, true] {
            if isOpen { try fixture.openBoth() }
            for key in keys {
                for value in [Duration.zero, Duration.seconds(-1), 5, "5", 1.5, true] as [Any] {
                    #expect(!input.setProperty(value, forKey: key))
                }
                #expect(input.setProperty(Duration.seconds(5000), forKey: key))
                #expect(output.property(forKey: key) as? Duration == .seconds(5000))
                // There is always an end to connecting.
                #expect(output.setProperty(nil, forKey: key) == (key != .socketConnectTimeoutKey))
            }
            for value in [-1, "1", 1.5, nil] as [Any?] {
                #expect(!output.setProperty(value, forKey: .writeBufferSizeKey))
            }
            #expect(output.setProperty(UInt16(7), forKey: .writeBufferSizeKey) && output.writeBufferSize == 7)
        }
        (output.idleTimeout, input.writeTimeout) = (.seconds(Int64.max), .seconds(1100))
        #expect(input.idleTimeout == .seconds(Int64.max) && output.writeTimeout == .seconds(1100))
    }

    @Test func `a stream that is not a socket's has no options, and a bound pair ignores them`() {
        let input = InputStream(data: [1])
        #expect(input.connectTimeout == nil && input.idleTimeout == nil)
        #expect(input.peerAddress == nil && input.localAddress == nil && input.socketDescriptor == nil)
        let pair = Stream.boundPair(bufferSize: 4)
        for stream in [pair.input, pair.output] as [Stream] {
            stream.connectTimeout = .seconds(1)
            (stream.idleTimeout, stream.writeTimeout) = (.seconds(1), nil)
            stream.proxy = StreamProxy(.socks5, host: "localhost", port: 1080)
            #expect(stream.connectTimeout == nil && stream.proxy == nil)
            stream.open()
        }
        #expect(pair.output.write([1]) == 1 && pair.input.read(upTo: 1) == [1])
    }

    @Test func `setting an option traps where it has no effect`() async {
        await #expect(processExitsWith: .failure) { InputStream(data: [1]).idleTimeout = .seconds(1) }
        await #expect(processExitsWith: .failure) {
            Stream.connection(to: .ipv4Loopback(port: 9)).input.idleTimeout = .zero
        }
    }
}
