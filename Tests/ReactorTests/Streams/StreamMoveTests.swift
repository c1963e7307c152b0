import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// A stream is on one loop at a time: scheduling it on another one moves it there.
@Suite(.runLoop) struct StreamMoveTests {
    private let loop = RunLoop.current

    @Test(arguments: StreamKind.finite)
    func `a stream that moves in every callback delivers each event once, on the loop that it is on`(
        kind: StreamKind
    ) throws {
        let threads = [try RunLoopThread(name: "one"), try RunLoopThread(name: "two")]
        let (fixture, moved, misplaced) = (try Fixture(kind), Shared(0), Shared(0))
        // Which thread's loop the stream is on.
        let home = Shared(0)
        let counter = Counter { stream, event in
            if !threads[home.value].runLoop.isCurrent { misplaced.update { $0 += 1 } }
            if event == .hasBytesAvailable {
                moved.update { $0 += (stream as! InputStream).read(upTo: 1).count }
            } else if event == .hasSpaceAvailable {
                moved.update { $0 += (stream as! OutputStream).writeOnce([1]) }
            }
            home.update { $0 = 1 - $0 }
            stream.schedule(in: threads[home.value].runLoop, forMode: .default)
        }
        fixture.stream.start(counter, on: threads[0].runLoop)
        counter.waitForEnd()
        for thread in threads { thread.stop() }
        #expect(moved.value == Fixture.content.count && !counter.hasOverlapped && misplaced.value == 0)
        for event in [1, 16] as [UInt] { #expect(counter.events.value.count { $0 == event } == 1) }
    }

    @Test(arguments: StreamKind.finite)
    func `a stream that other threads move meanwhile loses no event and doubles none`(kind: StreamKind) throws
    {
        let threads = [try RunLoopThread(name: "one"), try RunLoopThread(name: "two")]
        for _ in 0..<10 {
            let (fixture, moved) = (Carrier(try Fixture(kind)), Shared(0))
            let counter = Counter { stream, event in
                if event == .hasBytesAvailable {
                    moved.update { $0 += (stream as! InputStream).read(upTo: 1).count }
                }
                if event == .hasSpaceAvailable {
                    moved.update { $0 += (stream as! OutputStream).writeOnce([1]) }
                }
            }
            fixture.value.stream.start(counter, on: threads[0].runLoop)
            onThreads(2) { index in
                for _ in 0..<50 {
                    fixture.value.stream.schedule(in: threads[index].runLoop, forMode: .default)
                }
            }
            counter.waitForEnd()
            #expect(moved.value == Fixture.content.count && !counter.hasOverlapped)
            for event in [1, 16] as [UInt] { #expect(counter.events.value.count { $0 == event } == 1) }
        }
        for thread in threads { thread.stop() }
    }

    @Test(arguments: StreamKind.allCases)
    func `a moved stream is in the new loop's mode only, and its events come there`(kind: StreamKind) throws {
        let (fixture, recorder, thread) = (try Fixture(kind), Recorder(), try RunLoopThread(name: "former"))
        for mode in [RunLoop.Mode.default, .custom] {
            fixture.stream.schedule(in: thread.runLoop, forMode: mode)
        }
        fixture.stream.open()
        fixture.stream.start(recorder, mode: .custom)
        // The thread keeps something of its own in the default mode.
        #expect(thread.runLoop.performAndWait { RunLoop.current.poll(.custom) } == .finished)
        #expect(loop.run(in: .default) == .finished)
        RunLoop.current.serve(in: .custom) { recorder.events.count == 2 }
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `a transfer event that was not answered comes again on the new loop`(kind: StreamKind) throws {
        let (fixture, counter) = (try Fixture(kind), Counter())
        let thread = try RunLoopThread(name: "former")
        fixture.stream.start(counter, on: thread.runLoop)
        counter.wait { $0.contains(kind.transferEvent.rawValue) }
        let recorder = Recorder()
        fixture.stream.schedule(in: loop, forMode: .default)
        fixture.stream.delegate = recorder
        loop.serve { !recorder.events.isEmpty }
        #expect(recorder.events == [kind.transferEvent])
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `a delegate that has not answered a transfer event gets it again on the new loop`(kind: StreamKind)
        throws
    {
        let (fixture, counter) = (try Fixture(kind), Counter())
        let thread = try RunLoopThread(name: "former")
        fixture.stream.start(counter, on: thread.runLoop)
        counter.wait { $0.contains(kind.transferEvent.rawValue) }
        fixture.stream.schedule(in: loop, forMode: .default)
        loop.serve { counter.events.value.count == 3 }
        #expect(counter.events.value.suffix(2) == [kind.transferEvent.rawValue, kind.transferEvent.rawValue])
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `removing a stream from a loop that it is not on changes nothing`(kind: StreamKind) throws {
        let (fixture, recorder, thread) = (try Fixture(kind), Recorder(), try RunLoopThread(name: "other"))
        fixture.stream.schedule(in: thread.runLoop, forMode: .default)
        fixture.stream.start(recorder)
        fixture.stream.remove(from: thread.runLoop, forMode: .default)
        loop.serve { recorder.events.count == 2 }
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `scheduling a stream on a loop that has ended leaves it where it is`(kind: StreamKind) throws {
        let (fixture, recorder, thread) = (try Fixture(kind), Recorder(), try RunLoopThread(name: "ended"))
        thread.stop()
        fixture.stream.start(recorder)
        fixture.stream.schedule(in: thread.runLoop, forMode: .default)
        loop.serve { recorder.events.count == 2 }
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream moved in its callback is not called by a nested run before the callback returns`(
        kind: StreamKind
    ) throws {
        let (fixture, recorder, thread) = (try Fixture(kind), Recorder(), try RunLoopThread(name: "other"))
        recorder.onEvent = { [unowned recorder] stream, _ in
            let count = recorder.events.count
            stream.schedule(in: thread.runLoop, forMode: .default)
            stream.schedule(in: .current, forMode: .default)
            RunLoop.current.poll(.default)
            #expect(recorder.events.count == count)
            if count == 2 { stream.close() }
        }
        fixture.stream.start(recorder)
        loop.serve { recorder.events.count == 2 }
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
        thread.stop()
    }
}
