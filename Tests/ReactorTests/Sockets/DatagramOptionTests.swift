import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Options and groups. What is sent to groups here stays on the loopback interface.
@Suite(.runLoop) struct DatagramOptionTests {
    typealias Options = DatagramSocket.Options

    private let inflow = Inflow()

    @Test(arguments: [true, false])
    func `sockets share an address if all of them set the option`(isPort: Bool) throws {
        var options = Options()
        options[keyPath: isPort ? \Options.reusesPort : \Options.reusesAddress] = true
        let first = try DatagramSocket(boundTo: .ipv4Loopback(port: 0), options: options) { _, _, _ in }
        let address = first.localAddress
        _ = try DatagramSocket(boundTo: address, options: options) { _, _, _ in }
        expectErrno(.addressInUse) { try DatagramSocket(boundTo: address) { _, _, _ in } }
    }

    @Test func `only the given options are set`() throws {
        var options = Options()
        options.isIPv6Only = true
        options.allowsBroadcast = true
        options.receiveBufferSize = 50_000
        options.sendBufferSize = 60_000
        let socket = try DatagramSocket(boundTo: .ipv6Loopback(port: 0), options: options) { _, _, _ in }
        let descriptor = try #require(socket.descriptor)
        #expect(descriptor.socketOption(CInt(IPPROTO_IPV6), IPV6_V6ONLY) == 1)
        #expect(descriptor.socketOption(SOL_SOCKET, SO_BROADCAST) == 1)
        #expect(descriptor.socketOption(SOL_SOCKET, SO_RCVBUF) >= 50_000)
        #expect(descriptor.socketOption(SOL_SOCKET, SO_SNDBUF) >= 60_000)
        #expect(descriptor.socketOption(SOL_SOCKET, SO_REUSEADDR) == 0)
        #expect(fcntl(descriptor.rawValue, F_GETFD) == FD_CLOEXEC)
    }

    // MARK: Groups

    @Test func `a group's datagrams arrive between join and leave`() throws {
        let loopback = try #require(NetworkInterface(named: "lo"))
        let server = try inflow.socket(at: .ipv4Any(port: 0))
        let port = try #require(server.localAddress.port)
        let group = SocketAddress.ipv4(0xefff_4d4d, port: port)
        let client = try silentSocket(at: .ipv4Any(port: 0))
        try client.setMulticastInterface(loopback)
        try client.setMulticastTimeToLive(0)

        #expect(try client.send("before", to: group))
        try server.join(group, on: loopback)
        expectErrno(.addressInUse) { try server.join(group, on: loopback) }
        #expect(try client.send("joined", to: group))
        try server.leave(group, on: loopback)
        expectErrno(.addressNotAvailable) { try server.leave(group, on: loopback) }
        #expect(try client.send("after", to: group))
        #expect(try client.send("last", to: .ipv4Loopback(port: port)))
        inflow.wait(for: 2)
        #expect(inflow.texts == ["joined", "last"])
        server.close()
    }

    @Test func `an IPv6 group can be joined and left`() throws {
        let loopback = try #require(NetworkInterface(named: "lo"))
        let socket = try silentSocket(at: .ipv6Any(port: 0))
        let group = SocketAddress.ipv6(0xff01 << 112 | 0x4d4d, port: 0)
        try socket.join(group, on: loopback)
        expectErrno(.addressInUse) { try socket.join(group, on: loopback) }
        try socket.leave(group, on: loopback)
        expectErrno(.addressNotAvailable) { try socket.leave(group, on: loopback) }
    }

    @Test(arguments: [true, false])
    func `multicast options are set in the socket's family`(isIPv6: Bool) throws {
        let loopback = try #require(NetworkInterface(named: "lo"))
        let socket = try silentSocket(at: isIPv6 ? .ipv6Any(port: 0) : .ipv4Any(port: 0))
        try socket.setMulticastTimeToLive(0)
        try socket.setMulticastInterface(loopback)
        let descriptor = try #require(socket.descriptor)
        let (level, hops, loop) =
            isIPv6
            ? (IPPROTO_IPV6, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP)
            : (IPPROTO_IP, IP_MULTICAST_TTL, IP_MULTICAST_LOOP)
        #expect(descriptor.socketOption(CInt(level), hops) == 0)
        if isIPv6 {
            let interface = descriptor.socketOption(CInt(level), IPV6_MULTICAST_IF)
            #expect(interface == CInt(loopback.index))
        }
        // The loopback interface loops everything back, so only the option itself can be checked.
        for isLoopedBack in [false, true] {
            try socket.setMulticastLoop(isLoopedBack)
            #expect(descriptor.socketOption(CInt(level), loop) == (isLoopedBack ? 1 : 0))
        }
    }

    @Test func `invalid groups and options throw`() throws {
        let (socket, unix) = (try silentSocket(), try silentSocket(at: .unixUnnamed))
        let (group, nowhere) = (SocketAddress.ipv4(0xefff_0001, port: 0), NetworkInterface(index: 4_000_000))
        expectErrno(.invalidArgument) { try socket.join(.ipv4Loopback(port: 0)) }
        expectErrno(.invalidArgument) { try socket.join(.unixUnnamed) }
        #expect(throws: IOError.self) { try socket.join(.ipv6(0xff01 << 112 | 1, port: 0)) }
        expectErrno(.operationNotSupportedByDevice) { try socket.join(group, on: nowhere) }
        #expect(throws: IOError.self) { try socket.setMulticastInterface(nowhere) }
        expectErrno(.invalidArgument) { try unix.setMulticastTimeToLive(1) }
        expectErrno(.invalidArgument) { try unix.setMulticastInterface(.any) }
        expectErrno(.invalidArgument) { try unix.join(group) }
        expectErrno(.addressNotAvailable) { try silentSocket(at: .ipv4(0xc000_0201, port: 0)) }
    }

    @Test func `a datagram limit of 0 traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            var options = Options()
            options.datagramLimit = 0
            _ = try DatagramSocket(boundTo: .unixUnnamed, options: options) { _, _, _ in }
        }
        #expect(result.message.contains("datagramLimit"))
    }
}
