import Glibc
import Reactor
import ReactorFoundation
import ReactorTesting
import SystemPackage
import Testing

/// Cocoa's properties of socket streams, and what the connection knows of its socket.
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
                #expect(fixture.connection.peerAddress == address)
            }
        }
        check(isConnected: false)
        try fixture.openBoth()
        check(isConnected: true)
        fixture.closeBoth()
        check(isConnected: true)
        guard let address, address.port != nil else { return }
        let client = try SocketPeer(connectedTo: address)
        #expect(Connection(descriptor: client.descriptor, closeWhenDone: false).peerAddress == address)
    }

    @Test(arguments: SocketOrigin.allCases, [nil, true, false])
    func `the socket is known until both halves close, and closed if it is owned`(
        origin: SocketOrigin, wish: Bool?
    ) throws {
        let (fixture, key) = (try SocketFixture(origin), Stream.PropertyKey.shouldCloseNativeSocketKey)
        #expect((fixture.connection.descriptor == nil) == (origin != .descriptor))
        #expect(fixture.input.property(forKey: key) as? Bool == true)
        if let wish { #expect(fixture.input.setProperty(wish, forKey: key)) }
        #expect(fixture.output.property(forKey: key) as? Bool == wish ?? true)
        #expect(!fixture.input.setProperty("yes", forKey: key))
        try fixture.openBoth()
        let descriptor = try #require(fixture.connection.descriptor)
        let address = try SocketAddress.local(of: descriptor)
        #expect(fixture.connection.localAddress == address)
        fixture.input.close()
        #expect(fixture.connection.descriptor == descriptor)
        #expect(fixture.output.write([1]) == 1)
        fixture.output.close()
        #expect(fixture.connection.descriptor == nil && fixture.connection.localAddress == nil)
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
        let descriptor = try #require(fixture.connection.descriptor)
        #expect(descriptor.socketOption(level, name) == 46 << 2)
        #expect(fixture.output.property(forKey: .networkServiceType) as? String == voice)
    }

    @Test func `a buffer size is not negative`() throws {
        let output = try SocketFixture().output!
        #expect(output.writeBufferSize == 0)
        for value in [-1, "1", 1.5, nil] as [Any?] {
            #expect(!output.setProperty(value, forKey: .writeBufferSizeKey))
        }
        #expect(output.setProperty(UInt16(7), forKey: .writeBufferSizeKey) && output.writeBufferSize == 7)
    }
}
