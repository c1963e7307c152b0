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
            try onAThread {
                try OwnNetwork.enter()
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
            try onAThread {
                try OwnNetwork.enter()
                try OwnNetwork.choosePorts(40_000, 40_000)
                let pair = Stream.connection(to: .ipv4Loopback(port: 40_000))
                pair.input.open()
                while pair.input.streamStatus == .opening { sched_yield() }
                try #require(pair.input.streamErrno == .connectionRefused)
            }
        }
    }

    @Test func `lost packets arrive late and in order`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                try OwnNetwork.enter()
                let (fixture, reader) = (try SocketFixture(.ipv4), Recorder())
                reader.readsEverything()
                fixture.input.start(reader)
                fixture.output.start(nil)
                let (loop, peer) = (RunLoop.current, try fixture.peer)
                loop.serve { reader.events.count == 1 }
                for round in 1...3 {
                    try OwnNetwork.set(isUp: false)
                    _ = fixture.output.write(pattern(1000))
                    _ = peer.send(pattern(1000))
                    loop.poll()
                    try #require(reader.bytes.count == (round - 1) * 1000)
                    try OwnNetwork.set(isUp: true)
                    loop.serve { reader.bytes.count == round * 1000 }
                    try #require(peer.receive(1000) == pattern(1000))
                }
                try #require(reader.bytes == pattern(1000) + pattern(1000) + pattern(1000))
                try #require(reader.count(.errorOccurred) == 0)
                fixture.closeBoth()
            }
        }
    }

    @Test func `an unreachable peer is an error after the timeout`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                try OwnNetwork.enter()
                let (fixture, reader, writer) = (try SocketFixture(.ipv4), Recorder(), Recorder())
                fixture.input.start(reader)
                fixture.output.start(writer)
                let (loop, peer) = (RunLoop.current, try fixture.peer)
                loop.serve { reader.events.count == 1 }
                peer.send(pattern(10))
                loop.serve { reader.events.last == .hasBytesAvailable }
                try OwnNetwork.set(isUp: false)
                try #require(
                    fixture.input.setProperty(Duration.milliseconds(100), forKey: .socketIdleTimeoutKey))
                _ = fixture.output.write(pattern(10))
                try #require(fixture.input.read(upTo: 10) == pattern(10))
                loop.serve { [reader, writer].allSatisfy { $0.events.last == .errorOccurred } }
                try #require(fixture.input.streamErrno == .timedOut)
                try #require(fixture.output.streamErrno == .timedOut)
                fixture.closeBoth()
                try #require(loop.run(in: .default) == .finished)
            }
        }
    }
}
