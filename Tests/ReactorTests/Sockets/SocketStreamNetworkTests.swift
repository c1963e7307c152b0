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
                let pair = Stream.connection(to: SocketAddress("192.0.2.1:80")!)
                let recorders = [Recorder(), Recorder()]
                for (stream, recorder) in zip([pair.input, pair.output] as [Stream], recorders) {
                    recorder.readsEverything()
                    stream.start(recorder)
                }
                try #require(RunLoop.current.run(in: .default) == .finished)
                for recorder in recorders { try #require(recorder.events == [.errorOccurred]) }
                try #require(pair.input.streamErrno == .networkUnreachable)
                try #require(pair.output.streamErrno == .networkUnreachable)
            }
        }
    }

    /// The kernel gives a connecting socket the very port that it connects to, if there is no listener and it has no
    /// other.
    @Test func `a socket that connects to itself is refused`() async {
        await #expect(processExitsWith: .success) {
            try OwnNetwork.run {
                try OwnNetwork.choosePorts(40_000, 40_000)
                let pair = Stream.connection(to: .ipv4Loopback(port: 40_000))
                pair.input.open()
                try #require(pair.input.read(upTo: 1).isEmpty)
                try #require(pair.input.streamErrno == .connectionRefused)
            }
        }
    }

    @Test func `lost packets arrive late and in order`() async {
        await #expect(processExitsWith: .success) {
            try OwnNetwork.run {
                let (fixture, reader, loop) = (try SocketFixture(.ipv4), Recorder(), RunLoop.current)
                try fixture.start(reader, Recorder())
                reader.readsEverything()
                let peer = try fixture.peer
                for round in 1...2 {
                    try OwnNetwork.set(isUp: false)
                    _ = fixture.output.write(pattern(1000))
                    _ = peer.send(pattern(1000))
                    loop.poll()
                    try #require(reader.bytes.count == (round - 1) * 1000)
                    try OwnNetwork.set(isUp: true)
                    loop.serve { reader.bytes.count == round * 1000 }
                    try #require(peer.receive(1000) == pattern(1000))
                }
                try #require(reader.bytes == pattern(1000) + pattern(1000))
                try #require(reader.count(.errorOccurred) == 0)
            }
        }
    }

    @Test func `an unreachable peer is an error after the timeout`() async {
        await #expect(processExitsWith: .success) {
            try OwnNetwork.run {
                let (fixture, reader, writer) = (try SocketFixture(.ipv4), Recorder(), Recorder())
                try fixture.start(reader, writer)
                try fixture.peer.send(pattern(10))
                RunLoop.current.serve { reader.events.last == .hasBytesAvailable }
                try OwnNetwork.set(isUp: false)
                fixture.input.idleTimeout = .milliseconds(20)
                _ = fixture.output.write(pattern(10))
                try #require(fixture.input.read(upTo: 10) == pattern(10))
                RunLoop.current.serve { [reader, writer].allSatisfy { $0.events.last == .errorOccurred } }
                for stream in fixture.streams { try #require(stream.streamErrno == .timedOut) }
            }
        }
    }
}

/// A network of the calling thread, and of the threads that it starts afterwards, with a loopback interface only
/// (network_namespaces(7)).
private enum OwnNetwork {
    /// Whether this process may have one.
    static let isAllowed = (try? run {}) != nil

    /// Calls `body` on a thread in a new network.
    static func run(_ body: @escaping @Sendable () throws -> Void) throws {
        try onAThread {
            // Swift's Glibc lacks it.
            typealias Unshare = @convention(c) (CInt) -> CInt
            let unshare = unsafeBitCast(dlsym(nil, "unshare"), to: Unshare.self)
            let newNetwork: CInt = 0x4000_0000  // CLONE_NEWNET
            try SystemCall.make { unshare(newNetwork) }
            try set(isUp: true)
            try body()
        }
    }

    /// Brings the loopback interface up or down. While it is down, packets are lost.
    static func set(isUp: Bool) throws {
        let descriptor = try SystemCall.make { socket(AF_INET, CInt(SOCK_DGRAM.rawValue), 0) }
        defer { close(descriptor) }
        var request = ifreq()
        withUnsafeMutableBytes(of: &request.ifr_ifrn) { $0.copyBytes(from: Array("lo".utf8)) }
        request.ifr_ifru.ifru_flags = isUp ? Int16(IFF_UP) : 0
        try SystemCall.make { ioctl(descriptor, UInt(SIOCSIFFLAGS), &request) }
    }

    /// Limits the ports that the kernel chooses from.
    static func choosePorts(_ first: UInt16, _ last: UInt16) throws {
        let file = try FileDescriptor.open("/proc/sys/net/ipv4/ip_local_port_range", .writeOnly)
        try file.closeAfter { _ = try file.writeAll("\(first) \(last)".utf8) }
    }
}
