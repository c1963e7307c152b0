import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Streams of every kind, wherever they deliver their events.
@Suite(.runLoop) struct StreamLifetimeTests {
    private let loop = RunLoop.current

    @Test(arguments: StreamKind.allCases, StreamPlace.allCases)
    func `each read or write brings one event in the stream's place, until the stream is removed`(
        kind: StreamKind, place: StreamPlace
    ) throws {
        let (fixture, counter, stage) = (try Fixture(kind), Counter(), try StreamStage(place))
        stage.start(fixture.stream, counter)
        for count in 2...3 {
            stage.wait(for: counter) { $0.count == count }
            try stage.settle()
            #expect(counter.events.value.count == count)
            if place == .ownLoop { #expect(loop.passesInAWhile() < 10) }
            fixture.move(1)
        }
        stage.wait(for: counter) { $0.count == 4 }
        #expect(counter.events.value == [1] + [UInt](repeating: kind.transferEvent.rawValue, count: 3))
        #expect(counter.threads.value.contains(UInt(pthread_self())) == (place == .ownLoop))
        stage.remove(fixture.stream)
        fixture.move(1)
        try stage.settle()
        #expect(counter.events.value.count == 4 && stage.isEmpty)
    }

    @Test(arguments: StreamKind.allCases, StreamPlace.allCases)
    func `a stream closed or removed in its callback delivers nothing more, and ends its loop`(
        kind: StreamKind, place: StreamPlace
    ) throws {
        let stage = try StreamStage(place)
        let streamLoop = place == .queue ? nil : stage.loop
        for (event, closes) in [
            (.openCompleted, true), (.openCompleted, false), (kind.transferEvent, true),
            (kind.transferEvent, false),
        ] as [(Stream.Event, Bool)] {
            let fixture = try Fixture(kind)
            let counter = Counter { stream, received in
                guard received == event else { return }
                if closes { return stream.close() }
                if let streamLoop { return stream.remove(from: streamLoop, forMode: .default) }
                stream.setDispatchQueue(nil)
            }
            stage.start(fixture.stream, counter)
            stage.wait(for: counter) { $0.contains(event.rawValue) }
            try stage.settle()
            #expect(counter.events.value.last == event.rawValue && stage.isEmpty)
            #expect(fixture.stream.streamStatus == (closes ? .closed : .open))
        }
    }

    @Test(arguments: StreamKind.allCases, StreamPlace.allCases)
    func `a stream released in its callback lives until the callback returns`(
        kind: StreamKind, place: StreamPlace
    ) throws {
        let (fixture, stage) = (Carrier(try Fixture(kind)), try StreamStage(place))
        weak let stream = fixture.value.stream
        let counter = Counter { stream, _ in
            fixture.value.releaseStream()
            #expect(stream.streamStatus == .open)
        }
        stage.start(fixture.value.stream, counter)
        stage.wait(for: counter) { !$0.isEmpty }
        waitUntil { stream == nil }
        try stage.settle()
        #expect(counter.events.value.first == 1 && stage.isEmpty)
    }

    enum Ending: CaseIterable {
        case close, remove, release
    }

    @Test(arguments: StreamKind.allCases, Ending.allCases)
    func `a stream that another thread closes, removes or releases delivers nothing more`(
        kind: StreamKind, ending: Ending
    ) throws {
        for place in [StreamPlace.otherLoop, .queue] {
            let stage = try StreamStage(place)
            for round in 0..<10 {
                let (fixture, counter) = (try Fixture(kind), Counter())
                weak let stream = fixture.stream
                stage.start(fixture.stream, counter)
                if round.isMultiple(of: 2) { counter.wait { !$0.isEmpty } }
                switch ending {
                case .close: fixture.stream.close()
                case .remove: stage.remove(fixture.stream)
                case .release: fixture.releaseStream()
                }
                // A callback that had begun may count, but none after this.
                try stage.settle()
                let before = counter.events.value.count
                try stage.settle()
                #expect(counter.events.value.count == before && stage.isEmpty)
                fixture.releaseStream()
                waitUntil { stream == nil }
            }
        }
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
            // A fetch may still have the file, or have told the loop of its end.
            while internals != nil { loop.poll() }
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

    @Test(arguments: StreamKind.allCases)
    func `a loop nested in a callback does not call it again, sleeps, and serves other streams`(
        kind: StreamKind
    ) throws {
        let (fixture, other) = (try Fixture(kind), try Fixture(.pipe))
        let (recorder, otherRecorder) = (Recorder(), Recorder())
        otherRecorder.readsEverything()
        recorder.onEvent = { [unowned recorder, loop] _, event in
            let count = recorder.events.count
            #expect(loop.passesInAWhile() < 10)
            if event == .openCompleted { other.stream.start(otherRecorder) }
            loop.serve { otherRecorder.events.last == .endEncountered }
            #expect(recorder.events.count == count)
        }
        fixture.stream.start(recorder)
        loop.serve { recorder.events.count == 2 }
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
        #expect(otherRecorder.bytes == Fixture.content)
    }
}

@Suite(.runLoop) struct StreamThreadTests {
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
