import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Behaviour of networks: each test has a network and a process of its own.
@Suite(.runLoop, .enabled(if: OwnNetwork.isAllowed, "network namespaces are root's"))
struct SocketStreamNetworkTests {
    @Test func `an unreachable network is an error of both halves`() async {
        await #expect(processExitsWith: .success) {
            try OwnNetwork.run {
                let (input, output) = Connection(to: SocketAddress("192.0.2.1:80")!).streams
                for stream in [input, output] as [Stream] { stream.open() }
                try #require(input.read(upTo: 1).isEmpty && output.writeOnce([1]) == -1)
                try #require(input.streamErrno == .networkUnreachable)
                try #require(output.streamErrno == .networkUnreachable)
            }
        }
    }

    /// The kernel gives a connecting socket the very port that it connects to, if there is no listener and it has no
    /// other.
    @Test func `a socket that connects to itself is refused`() async {
        await #expect(processExitsWith: .success) {
            try OwnNetwork.run {
                let file = try FileDescriptor.open("/proc/sys/net/ipv4/ip_local_port_range", .writeOnly)
                try file.closeAfter { _ = try file.writeAll("40000 40000".utf8) }
                let input = Connection(to: .ipv4Loopback(port: 40_000)).streams.input
                input.open()
                try #require(input.read(upTo: 1).isEmpty && input.streamErrno == .connectionRefused)
            }
        }
    }

    @Test func `a write after an event for space does not wait though the system limits unsent bytes`() async
    {
        await #expect(processExitsWith: .success) {
            try OwnNetwork.run {
                let file = try FileDescriptor.open("/proc/sys/net/ipv4/tcp_notsent_lowat", .writeOnly)
                try file.closeAfter { _ = try file.writeAll("16384".utf8) }
                let loop = RunLoop.current
                let server = Shared<Connection?>(nil)
                let listener = try Listener(.ipv4Loopback(port: 0)) { _, connection in
                    server.value = connection
                }
                try loop.add(listener, forMode: .default)
                let options = Connection.Options(sendBufferSize: 1_000_000)
                let output = Connection(to: listener.localAddress, options: options).streams.output
                let least = Shared(Int.max)
                let writer = HandlerDelegate { stream, event in
                    guard event == .hasSpaceAvailable, let output = stream as? OutputStream else { return }
                    least.value = min(least.value, output.write(pattern(512), maxLength: 512))
                }
                output.delegate = writer
                output.schedule(in: loop, forMode: .default)
                output.open()
                loop.serve { output.streamStatus == .open && server.value != nil }
                // The peer does not read. A write that waits fails when the peer resets the connection.
                let peer = try JoinableThread {
                    sleep(2)
                    server.value?.reset()
                }
                loop.run(in: .default, until: .now + .milliseconds(200))
                try #require(least.value > 0)
                withExtendedLifetime(writer) {}
                peer.join()
            }
        }
    }
}

/// A network of a thread, with a loopback interface only (network_namespaces(7)).
private enum OwnNetwork {
    /// Whether this process may have one.
    static let isAllowed = (try? run {}) != nil

    /// Calls `body` on a thread in a new network. The threads that it starts are in it, too.
    static func run(_ body: @escaping @Sendable () throws -> Void) throws {
        try onAThread {
            // Swift's Glibc lacks it.
            typealias Unshare = @convention(c) (CInt) -> CInt
            let unshare = unsafeBitCast(dlsym(nil, "unshare"), to: Unshare.self)
            let newNetwork: CInt = 0x4000_0000  // CLONE_NEWNET
            try SystemCall.make { unshare(newNetwork) }
            try bringUpLoopback()
            try body()
        }
    }

    private static func bringUpLoopback() throws {
        let peer = try SocketPeer(family: AF_INET, SOCK_DGRAM)
        var request = ifreq()
        withUnsafeMutableBytes(of: &request.ifr_ifrn) { $0.copyBytes(from: Array("lo".utf8)) }
        request.ifr_ifru.ifru_flags = Int16(IFF_UP)
        try SystemCall.make { ioctl(peer.number, UInt(SIOCSIFFLAGS), &request) }
    }
}
