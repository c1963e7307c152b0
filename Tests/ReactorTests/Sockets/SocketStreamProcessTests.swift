import Glibc
import Reactor
import SystemPackage
import Testing

/// What concerns a whole process happens in one of its own.
@Suite struct SocketStreamProcessTests {
    @Test(arguments: SocketOrigin.allCases)
    func `a peer that has gone is an error, not a signal`(origin: SocketOrigin) async {
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

    @Test func `a connection for which there is no descriptor fails, and the next one comes when there is`()
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
                var (refused, recorder) = (Stream.socketPair(to: server.address), Recorder())
                var connected: [InputStream] = []
                // What was closed on another thread may leave a descriptor free that was not when they were taken.
                while recorder.events.isEmpty {
                    while case let number = dup(0), number >= 0 { taken.append(number) }
                    recorder.readsEverything()
                    refused.input.start(recorder)
                    RunLoop.current.serve { !recorder.events.isEmpty }
                    guard recorder.events == [.openCompleted] else { continue }
                    connected.append(refused.input)
                    (refused, recorder) = (Stream.socketPair(to: server.address), Recorder())
                }
                try #require(recorder.events == [.errorOccurred])
                try #require(refused.input.streamError as? Errno == .tooManyOpenFiles)

                for number in taken { close(number) }
                let (pair, opened) = (Stream.socketPair(to: server.address), Recorder())
                pair.input.start(opened)
                RunLoop.current.serve { opened.events == [.openCompleted] }
                pair.input.close()
            }
        }
    }

    @Test func `a thousand connections that come and go leave nothing`() async {
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
}
