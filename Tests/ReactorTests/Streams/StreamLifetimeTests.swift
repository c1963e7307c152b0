import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamLifetimeTests {
    private let loop = RunLoop.current

    @Test(arguments: StreamKind.allCases, [true, false])
    func `a stream closed or removed in its callback ends the loop`(kind: StreamKind, closes: Bool) throws {
        for event in [.openCompleted, kind.transferEvent] as [Stream.Event] {
            let (fixture, recorder) = (try Fixture(kind), Recorder())
            recorder.onEvent = { stream, received in
                guard received == event else { return }
                if closes { stream.close() } else { stream.remove(from: .current, forMode: .default) }
            }
            fixture.stream.start(recorder)
            #expect(loop.run(in: .default) == .finished)
            #expect(recorder.events.last == event)
            #expect(fixture.stream.streamStatus == (closes ? .closed : .open))
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream released in its callback lives until the callback returns`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        weak let stream = fixture.stream
        recorder.onEvent = { [unowned recorder] stream, _ in
            fixture.releaseStream()
            #expect(stream.streamStatus == .open)
            recorder.onEvent = { _, _ in }
        }
        fixture.stream.start(recorder)
        #expect(loop.run(in: .default) == .finished)
        #expect(stream == nil && recorder.events.first == .openCompleted)
    }

    @Test(arguments: StreamKind.allCases)
    func `releasing a stream frees it, scheduled or not, opened or not`(kind: StreamKind) throws {
        for (opens, isScheduled) in [(false, false), (true, false), (false, true), (true, true)] {
            let (fixture, recorder) = (try Fixture(kind), Recorder())
            weak let stream = fixture.stream
            weak let internals = fixture.stream.internals
            if opens { fixture.stream.open() }
            if isScheduled { fixture.stream.schedule(in: loop, forMode: .common) }
            fixture.stream.delegate = recorder
            fixture.releaseStream()
            #expect(stream == nil && loop.run(in: .default) == .finished)
            #expect(recorder.events.isEmpty)
            // A fetch may still have the file.
            while internals != nil { sched_yield() }
        }
    }

    @Test(arguments: [true, false], [true, false])
    func `only an owned descriptor is closed with its stream`(owns: Bool, opens: Bool) throws {
        let pipe = try FileDescriptor.pipe()
        var input: InputStream? = InputStream(descriptor: pipe.readEnd, closeWhenDone: owns)
        if opens { input?.open() }
        #expect(!isBroken(pipe.writeEnd))
        input = nil
        #expect(isBroken(pipe.writeEnd) == owns)
        if !owns { try pipe.readEnd.close() }
        try pipe.writeEnd.close()
    }

    enum Ending: CaseIterable {
        case closedInput, releasedInput, releasedOutput
    }

    @Test(arguments: Ending.allCases)
    func `a file is closed with its stream`(ending: Ending) throws {
        let (folder, recorder) = (TemporaryFolder(), Recorder())
        let path = try folder.file(pattern(300_000))
        var stream: Stream? = ending == .releasedOutput ? OutputStream(path: path) : InputStream(path: path)
        recorder.onEvent = { stream, event in
            _ = (stream as? InputStream)?.read(upTo: 1000)
            if ending == .closedInput, event == .hasBytesAvailable { stream.close() }
        }
        stream?.start(recorder)
        loop.serve { recorder.events.count >= 2 }
        #expect(ending == .closedInput || openDescriptors(of: path) == 1)
        stream = nil
        while openDescriptors(of: path) > 0 { sched_yield() }
    }

    @Test(arguments: StreamKind.allCases)
    func `a loop nested in a callback does not call it again, and sleeps`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        var passes: [Int] = []
        recorder.onEvent = { [unowned recorder] _, _ in
            let count = recorder.events.count
            passes.append(RunLoop.current.passesInAWhile())
            #expect(recorder.events.count == count)
        }
        fixture.stream.start(recorder)
        loop.serve { recorder.events.count == 2 }
        #expect(passes.allSatisfy { $0 < 10 })
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
    }

    @Test func `a loop nested in a callback serves other streams`() throws {
        let (outer, inner) = (try Fixture(.pipe), try Fixture(.pipe))
        let (first, second) = (Recorder(), Recorder())
        second.readsEverything()
        first.onEvent = { _, event in
            guard event == .hasBytesAvailable else { return }
            inner.stream.start(second)
            RunLoop.current.serve { second.events.last == .endEncountered }
            outer.move(1)
        }
        outer.stream.start(first)
        loop.serve { first.count(.hasBytesAvailable) == 2 }
        #expect(second.bytes == Fixture.content)
    }
}

@Suite(.runLoop) struct StreamThreadTests {
    @Test(arguments: StreamKind.allCases)
    func `a stream delivers on another thread's loop until it is removed there`(kind: StreamKind) throws {
        let (thread, fixture, counter) = (try RunLoopThread(name: "streams"), try Fixture(kind), Counter())
        fixture.stream.schedule(in: thread.runLoop, forMode: .custom)
        fixture.stream.start(counter, on: thread.runLoop)
        counter.wait { $0.count == 2 }
        fixture.move(1)
        counter.wait { $0.count == 3 }
        #expect(counter.events.value == [1, kind.transferEvent.rawValue, kind.transferEvent.rawValue])
        for mode in [.default, RunLoop.Mode.custom] {
            fixture.stream.remove(from: thread.runLoop, forMode: mode)
        }
        fixture.move(1)
        #expect(thread.runLoop.performAndWait { RunLoop.current.poll(.custom) } == .finished)
        #expect(counter.events.value.count == 3)
        #expect(!counter.threads.value.contains(UInt(pthread_self())))
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `closing from another thread ends the delivery`(kind: StreamKind) throws {
        let thread = try RunLoopThread(name: "streams")
        for _ in 0..<20 {
            let (fixture, counter) = (try Fixture(kind), Counter())
            fixture.stream.start(counter, on: thread.runLoop, mode: .common)
            fixture.stream.close()
            // A callback that had begun may count, but none after this.
            thread.runLoop.performAndWait {}
            let before = counter.events.value.count
            thread.runLoop.performAndWait { RunLoop.current.settle() }
            #expect(counter.events.value.count == before && fixture.stream.streamStatus == .closed)
        }
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream may be released on another thread while the loop serves it`(kind: StreamKind) throws {
        let thread = try RunLoopThread(name: "streams")
        for round in 0..<20 {
            let (fixture, counter) = (try Fixture(kind), Counter())
            weak let stream = fixture.stream
            fixture.stream.start(counter, on: thread.runLoop)
            if round.isMultiple(of: 2) { counter.wait { !$0.isEmpty } }
            fixture.releaseStream()
            waitUntil { stream == nil }
        }
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream can be scheduled again after its loop's thread has ended`(kind: StreamKind) throws {
        let (fixture, recorder, thread) = (try Fixture(kind), Recorder(), try RunLoopThread(name: "ends"))
        fixture.stream.schedule(in: thread.runLoop, forMode: .default)
        fixture.stream.open()
        thread.stop()
        fixture.stream.start(recorder)
        RunLoop.current.serve { recorder.events.last == kind.transferEvent }
        #expect(fixture.move(1) == 1)
    }

    @Test func `scheduling and closing at the same time leave no mode occupied`() throws {
        let thread = try RunLoopThread(name: "streams")
        for _ in 0..<100 {
            let input = Carrier(InputStream(data: [1]))
            input.value.open()
            onThreads(2) { index in
                if index == 0 { input.value.close() }
                if index == 1 { input.value.schedule(in: thread.runLoop, forMode: .custom) }
            }
        }
        #expect(thread.runLoop.performAndWait { RunLoop.current.poll(.custom) } == .finished)
        thread.stop()
    }

    @Test func `no write uses a lent descriptor after close has returned on another thread`() throws {
        for _ in 0..<50 {
            let (lent, other) = (try TestPipe(), try TestPipe())
            for end in [lent.writeEnd, other.readEnd] { end.setNonBlocking(true) }
            let (stream, started) = (Carrier(OutputStream(descriptor: lent.writeEnd)), Countdown(1))
            stream.value.open()
            let writer = try JoinableThread { while stream.value.writeOnce([1]) > 0 { started.count() } }
            started.wait()
            stream.value.close()
            #expect(dup2(other.writeEnd.rawValue, lent.writeEnd.rawValue) >= 0)
            writer.join()
            var byte: UInt8 = 0
            #expect(read(other.readEnd.rawValue, &byte, 1) == -1)
        }
    }
}
