import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamLifetimeTests {
    @Test(arguments: StreamKind.allCases)
    func `closing a stream in its callback delivers no further events and ends the loop`(kind: StreamKind)
        async throws
    {
        try await onItsOwnThread {
            for event in [.openCompleted, kind.transferEvent] as [Stream.Event] {
                let (fixture, recorder) = (try Fixture(kind), Recorder())
                recorder.onEvent = { stream, received in if received == event { stream.close() } }
                fixture.stream.start(recorder)
                #expect(RunLoop.current.run(in: .default) == .finished)
                #expect(recorder.events.last == event && fixture.stream.streamStatus == .closed)
            }
        }
    }

    @Test(arguments: StreamKind.finite)
    func `closing at the end ends the loop`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        recorder.onEvent = { stream, event in
            if event == kind.transferEvent { fixture.move(10) }
            if event == .endEncountered { stream.close() }
        }
        fixture.stream.start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.events.last == .endEncountered)
    }

    @Test(arguments: StreamKind.allCases)
    func `removing a stream in its callback delivers no further events on that loop`(kind: StreamKind)
        async throws
    {
        try await onItsOwnThread {
            for event in [.openCompleted, kind.transferEvent] as [Stream.Event] {
                let (fixture, recorder) = (try Fixture(kind), Recorder())
                recorder.onEvent = { stream, received in
                    if received == event { stream.remove(from: .current, forMode: .default) }
                }
                fixture.stream.start(recorder)
                #expect(RunLoop.current.run(in: .default) == .finished)
                #expect(recorder.events.last == event && fixture.stream.streamStatus == .open)
            }
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream whose delegate was released delivers nothing`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        recorder.onEvent = { stream, _ in stream.delegate = nil }
        fixture.stream.start(recorder)
        RunLoop.current.serve { !recorder.events.isEmpty }
        RunLoop.current.poll()
        #expect(recorder.events == [.openCompleted])
    }

    @Test(arguments: StreamKind.allCases)
    func `a delegate may be released while an event is pending, and in its own callback`(
        kind: StreamKind
    ) throws {
        let fixture = try Fixture(kind)
        var recorder: Recorder? = Recorder()
        weak let known = recorder
        fixture.stream.start(recorder)
        recorder = nil
        #expect(known == nil && fixture.stream.delegate == nil)
        RunLoop.current.poll()
        fixture.stream.remove(from: .current, forMode: .default)
        var deliveries = 0
        recorder = Recorder()
        recorder?.onEvent = { _, _ in
            deliveries += 1
            recorder = nil
        }
        fixture.stream.start(recorder)
        RunLoop.current.serve { deliveries > 0 }
        RunLoop.current.poll()
        #expect(deliveries == 1 && recorder == nil)
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
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(stream == nil && recorder.events.first == .openCompleted)
    }

    @Test(arguments: StreamKind.allCases)
    func `releasing a stream frees it, scheduled or not, opened or not`(kind: StreamKind) throws {
        for steps in 0..<4 {
            let (fixture, recorder) = (try Fixture(kind), Recorder())
            weak let stream = fixture.stream
            weak let internals = fixture.stream.internals
            if steps & 1 != 0 { fixture.stream.open() }
            if steps & 2 != 0 { fixture.stream.schedule(in: .current, forMode: .common) }
            fixture.stream.delegate = recorder
            fixture.releaseStream()
            #expect(stream == nil && RunLoop.current.run(in: .default) == .finished)
            #expect(recorder.events.isEmpty)
            // A fetch that is under way still has the file.
            while internals != nil { sched_yield() }
        }
    }

    @Test(arguments: [false, true])
    func `an owned descriptor is closed with the stream`(opens: Bool) async throws {
        let pipe = try FileDescriptor.pipe()
        var input: InputStream? = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        if opens { input?.open() }
        #expect(!isBroken(pipe.writeEnd))
        input = nil
        #expect(isBroken(pipe.writeEnd))
        try pipe.writeEnd.close()
    }

    @Test func `a borrowed descriptor stays open`() async throws {
        let pipe = try FileDescriptor.pipe()
        let input = InputStream(descriptor: pipe.readEnd)
        input.open()
        input.close()
        #expect(!isBroken(pipe.writeEnd))
        try pipe.readEnd.close()
        try pipe.writeEnd.close()
    }

    @Test func `files are closed with their streams, however they end`() throws {
        let folder = TemporaryFolder()
        let path = try folder.file(pattern(300_000))
        for ending in 0..<3 {
            let recorder = Recorder()
            var stream: Stream? = ending == 2 ? OutputStream(path: path) : InputStream(path: path)
            recorder.onEvent = { stream, event in
                _ = (stream as? InputStream)?.read(upTo: 1000)
                if ending == 0, event == .hasBytesAvailable { stream.close() }
            }
            stream?.start(recorder)
            RunLoop.current.serve { recorder.events.count >= 2 }
            #expect(ending == 0 || openDescriptors(of: path) == 1)
            stream = nil
            while openDescriptors(of: path) > 0 { sched_yield() }
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `a loop nested in a callback does not call it again, and sleeps`(
        kind: StreamKind
    ) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        var (depth, passes) = (0, [Int]())
        recorder.onEvent = { _, event in
            depth += 1
            #expect(depth == 1)
            passes.append(RunLoop.current.passesInAWhile())
            depth -= 1
        }
        fixture.stream.start(recorder)
        RunLoop.current.serve { recorder.events.count == 2 }
        #expect(passes.allSatisfy { $0 < 10 })
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
    }

    @Test func `a loop nested in a callback serves other streams`() async throws {
        try await onItsOwnThread {
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
            RunLoop.current.serve { first.count(.hasBytesAvailable) == 2 }
            #expect(second.bytes == Fixture.content)
        }
    }

    @Test func `a descriptor number closed and reused in a callback delivers events of the new file only`()
        async throws
    {
        try await onItsOwnThread {
            let (old, recorder, loop) = (try FileDescriptor.pipe(), Recorder(), RunLoop.current)
            // Borrowed: other tests' files must not get the number in between.
            let first = InputStream(descriptor: old.readEnd)
            let second = Recorder()
            var next: (readEnd: FileDescriptor, writeEnd: FileDescriptor)?
            var stream: InputStream?
            recorder.onEvent = { closing, event in
                guard event == .hasBytesAvailable else { return }
                closing.close()
                let fresh = try! FileDescriptor.pipe()
                next = fresh
                let reused = dup2(fresh.readEnd.rawValue, old.readEnd.rawValue)
                try! fresh.readEnd.close()
                stream = InputStream(descriptor: FileDescriptor(rawValue: reused), closeWhenDone: true)
                stream?.start(second)
            }
            first.start(recorder)
            try old.writeEnd.writeAll([1])
            loop.serve { second.events == [.openCompleted] }
            loop.poll()
            #expect(second.events == [.openCompleted])
            try next?.writeEnd.writeAll([2])
            loop.serve { second.events == [.openCompleted, .hasBytesAvailable] }
            #expect(stream?.read(upTo: 5) == [2])
            #expect(recorder.events == [.openCompleted, .hasBytesAvailable])
            try old.writeEnd.close()
            try next?.writeEnd.close()
        }
    }
}
