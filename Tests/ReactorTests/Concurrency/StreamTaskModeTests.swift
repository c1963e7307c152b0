import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamTaskModeTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test(arguments: [true, false])
    func `a task waits for a stream while the loop runs in another mode`(isScheduled: Bool) throws {
        for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
        let feed = try TestPipe()
        let isReading = Shared(false)
        // The modes are those of the stream, if it is scheduled, and otherwise those of the task.
        let executor = isScheduled ? loop.executor() : loop.executor(inModes: [.custom])
        Task(executorPreference: executor) {
            let input = feed.makeInput()
            if isScheduled { input.schedule(in: loop, forMode: .custom) }
            isReading.value = true
            for try await chunk in input.chunks { trace(String(bytes: chunk)) }
            trace("end")
        }
        loop.serve(in: isScheduled ? .default : .custom) { isReading.value }
        feed.put("a")
        loop.poll(.default, passes: 50)
        #expect(trace.all == [])
        loop.serve(in: .custom) { !trace.all.isEmpty }
        // A nested run in the stream's mode serves it; one in another mode does not.
        loop.performAsSource {
            feed.put("b")
            loop.poll(.tracking, passes: 50)
            #expect(trace.all == ["a"])
            loop.serve(in: .custom) { trace.all.count == 2 }
        }
        loop.serve(in: .default) { trace.all.count == 2 }
        feed.closeWriteEnd()
        loop.serve(in: .custom) { trace.all.last == "end" }
        #expect(trace.all == ["a", "b", "end"])
    }

    @Test func `a timeout passes in the modes of the stream`() throws {
        try withVirtualTime { time in
            for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
            let feed = try TestPipe("abc")
            Task(executorPreference: loop.executor()) {
                let input = feed.makeInput()
                input.schedule(in: loop, forMode: .custom)
                let error = await thrownError { _ = try await input.read(exactly: 4, timeout: .seconds(20)) }
                trace("\(error?.errno == .timedOut)")
                loop.performAsSource(inModes: [.custom]) {}
            }
            time.advance(by: .seconds(30))
            #expect(trace.all == [])
            loop.serve(in: .custom) { !trace.all.isEmpty }
            #expect(trace.all == ["true"])
        }
    }

    @Test func `an actor that computes its executor waits for a stream`() async throws {
        let home = LoopThread()
        let reader = Computing(home.thread)
        let feed = try TestPipe()
        let error = await thrownError { _ = try await reader.read(feed, timeout: .milliseconds(1)) }
        #expect(error?.errno == .timedOut)
    }

    /// What happens to the loop or the queue of a stream while a task waits.
    enum Change: CaseIterable, Sendable { case anotherLoop, noLoop, noQueue, endedLoop }

    /// What the task waits for.
    enum Wait: CaseIterable, Sendable { case bytes, room, deadline }

    @Test(arguments: Change.allCases, Wait.allCases)
    func `a task continues when its stream loses its loop or its queue`(change: Change, wait: Wait)
        async throws
    {
        let (first, second) = (try RunLoopThread(name: "first"), LoopThread())
        let (peer, other) = try SocketPeer.pair()
        let (input, output) = Connection(descriptor: other).streams
        output.writeBufferSize = 4_000_000
        let stream: Stream = wait == .room ? output : input
        let streams = Carrier((input, output))
        if change == .noQueue {
            stream.setDispatchQueue(DispatchQueue(label: "events"))
        } else {
            stream.schedule(in: first.runLoop, forMode: .default)
        }
        if wait == .room { try await output.writeAll(pattern(2_000_000)) }
        let actor = TurnTaker()
        let task = Task {
            try await actor.perform {
                let (input, output) = streams.value
                switch wait {
                case .bytes: #expect(try await input.read(exactly: 1) == [1])
                case .room: try await output.flush()
                case .deadline:
                    let error = await thrownError {
                        _ = try await input.read(exactly: 1, timeout: .milliseconds(30))
                    }
                    #expect(error?.errno == .timedOut)
                }
            }
        }
        await actor.waitUntilSuspended()
        switch change {
        case .anotherLoop: stream.schedule(in: second.loop, forMode: .default)
        case .noLoop: stream.remove(from: first.runLoop, forMode: .default)
        case .noQueue: stream.setDispatchQueue(nil)
        case .endedLoop: await first.shutDown()
        }
        if wait == .bytes { peer.send([1]) }
        if wait == .room { _ = try JoinableThread { _ = peer.receiveToEnd() } }
        try await task.value
        input.close()
        output.close()
        await first.shutDown()
    }
}

/// An actor that asks its loop for the executor whenever the runtime asks for it.
private actor Computing {
    private let thread: RunLoopThread
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        thread.runLoop.executor().asUnownedSerialExecutor()
    }

    init(_ thread: RunLoopThread) { self.thread = thread }

    func read(_ feed: TestPipe, timeout: Duration) async throws -> [UInt8]? {
        try await feed.makeInput().read(exactly: 3, timeout: timeout)
    }
}
