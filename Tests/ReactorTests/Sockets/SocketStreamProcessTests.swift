import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Tests in a process of their own.
@Suite(.runLoop) struct SocketStreamProcessTests {
    @Test(arguments: SocketOrigin.allCases)
    func `writing to a closed connection fails without raising SIGPIPE`(origin: SocketOrigin) async {
        await #expect(processExitsWith: .success) { [origin] in
            signal(SIGPIPE, SIG_DFL)
            try onAThread {
                for isScheduled in [true, false] {
                    let fixture = try SocketFixture(origin)
                    if isScheduled { fixture.output.schedule(in: .current, forMode: .default) }
                    try fixture.openBoth()
                    try fixture.peer.reset()
                    // The first may still be taken: what comes back for it is the fault of the next.
                    while fixture.output.streamError == nil { _ = fixture.output.writeOnce([1]) }
                    try #require(fixture.output.writeOnce([1]) == -1)
                    fixture.closeBoth()
                }
            }
        }
    }

    @Test func `connecting fails without a free descriptor, and succeeds once there is one`()
        async
    {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let (server, warm) = (try SocketServer(), try SocketFixture(.ipv4))
                try warm.openBoth()
                warm.input.start(nil)
                RunLoop.current.poll()
                warm.closeBoth()
                var most = rlimit()
                getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &most)
                most.rlim_cur = 100
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &most)
                var taken: [CInt] = []
                var (refused, recorder) = (Stream.connection(to: server.address), Recorder())
                var connected: [InputStream] = []
                // What was closed on another thread may leave a descriptor free that was not when they were taken.
                while recorder.events.isEmpty {
                    while case let number = dup(0), number >= 0 { taken.append(number) }
                    recorder.readsEverything()
                    refused.input.start(recorder)
                    RunLoop.current.serve { !recorder.events.isEmpty }
                    guard recorder.events == [.openCompleted] else { continue }
                    connected.append(refused.input)
                    (refused, recorder) = (Stream.connection(to: server.address), Recorder())
                }
                try #require(recorder.events == [.errorOccurred])
                try #require(refused.input.streamErrno == .tooManyOpenFiles)

                for number in taken { close(number) }
                let (pair, opened) = (Stream.connection(to: server.address), Recorder())
                pair.input.start(opened)
                RunLoop.current.serve { opened.events == [.openCompleted] }
                pair.input.close()
            }
        }
    }

    @Test func `a thousand connections leave no descriptors or threads behind`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                func once(_ origin: SocketOrigin, _ way: Int) throws {
                    let (fixture, recorder) = (try SocketFixture(origin), Recorder())
                    recorder.readsEverything()
                    for stream in fixture.streams { stream.start(recorder) }
                    let peer = try fixture.peer
                    RunLoop.current.serve { recorder.count(.openCompleted) == 2 }
                    _ = fixture.output.write(pattern(100))
                    if way == 0 { peer.close() }
                    if way == 1 { fixture.closeBoth() }
                    if way == 2 { fixture.releaseStreams() }
                    while way == 0, recorder.events.last != .endEncountered,
                        recorder.events.last != .errorOccurred
                    {
                        RunLoop.current.run(mode: .default, before: .distantFuture)
                    }
                }
                let sockets = openSockets()
                for way in 0..<3 { for origin in SocketOrigin.allCases { try once(origin, way) } }
                waitUntil { openSockets() == sockets }
                let before = ownDescriptors()
                for round in 0..<1000 { try once(SocketOrigin.allCases[round % 6], round % 3) }
                waitUntil { ownDescriptors() == before }
                try #require(ownDescriptors() == before)
            }
        }
    }

    /// Waiting for the last acknowledgement must not consume the error, which the kernel reports once.
    @Test func `a reset after the output was shut down is an error of the input`()
        async
    {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let fixture = try SocketFixture(.ipv4, isNarrow: true)
                try fixture.openBoth()
                let peer = try fixture.peer
                try fixture.narrow()
                while fixture.output.hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(10_000)) }
                let before = openSockets()
                try fixture.output.shutDown()
                try #require(openSockets() == before + 1)
                peer.reset()
                waitUntil { openSockets() == before - 1 }
                try #require(fixture.input.read(upTo: 1).isEmpty)
                try #require(fixture.input.streamErrno == .connectionReset)
            }
        }
    }

    /// With few descriptors left the sender gets one of its own, but its loop cannot register it.
    @Test(arguments: 0..<6)
    func `buffered bytes are sent when no descriptor is free`(spare: Int) async {
        await #expect(processExitsWith: .success) { [spare] in
            try onAThread {
                let (peer, other) = try SocketPeer.pair()
                SocketPeer.narrow(other.rawValue)
                let (input, output) = Stream.connection(descriptor: other, closeWhenDone: true)
                output.writeBufferSize = 65_536
                for stream in [input, output] { stream.start(nil) }
                var limit = rlimit(rlim_cur: 128, rlim_max: 128)
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                var taken: [CInt] = []
                while case let number = dup(0), number >= 0 { taken.append(number) }
                for _ in 0..<spare { close(taken.removeLast()) }
                var sent = 0
                while case let count = output.writeOnce(pattern(5000)), count > 0 { sent += count }
                try #require(peer.receive(sent).count == sent && output.streamError == nil)
            }
        }
    }
}
