import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// A delegate for any thread: counts its events, and records whether two calls overlapped.
final class Counter: StreamDelegate, Sendable {
    let events = Shared<[UInt]>([])
    let threads = Shared<Set<UInt>>([])
    let overlaps = Atomic(0)
    private let depth = Atomic(0)
    let onEvent: @Sendable (Stream, Stream.Event) -> Void

    init(_ onEvent: @escaping @Sendable (Stream, Stream.Event) -> Void = { _, _ in }) {
        self.onEvent = onEvent
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        if depth.add(1, ordering: .sequentiallyConsistent).oldValue > 0 {
            overlaps.add(1, ordering: .sequentiallyConsistent)
        }
        events.update { $0.append(eventCode.rawValue) }
        _ = threads.update { $0.insert(UInt(pthread_self())).inserted }
        onEvent(aStream, eventCode)
        depth.subtract(1, ordering: .sequentiallyConsistent)
    }
}

@Suite(.runLoop) struct StreamThreadTests {
    @Test(arguments: StreamKind.allCases)
    func `a stream opened on one thread delivers on another's loop`(kind: StreamKind) throws {
        let thread = try RunLoopThread(name: "streams")
        let counter = Counter()
        let fixture = try Fixture(kind)
        fixture.stream.delegate = counter
        fixture.stream.schedule(in: thread.runLoop, forMode: .default)
        fixture.stream.open()
        waitUntil { counter.events.value.count == 2 }
        fixture.move(1)
        waitUntil { counter.events.value.count == 3 }
        fixture.stream.close()
        thread.stop()
        #expect(counter.events.value == [1, kind.transferEvent.rawValue, kind.transferEvent.rawValue])
        #expect(!counter.threads.value.contains(UInt(pthread_self())))
    }

    @Test(arguments: StreamKind.allCases)
    func `closing from another thread ends the delivery`(kind: StreamKind) throws {
        let thread = try RunLoopThread(name: "streams")
        for _ in 0..<20 {
            let fixture = try Fixture(kind)
            let counter = Counter()
            fixture.stream.delegate = counter
            fixture.stream.schedule(in: thread.runLoop, forMode: .common)
            fixture.stream.open()
            fixture.stream.close()
            // A callback that was under way may count, but none after this.
            thread.runLoop.performAndWait {}
            let before = counter.events.value.count
            thread.runLoop.performAndWait {}
            #expect(counter.events.value.count == before && fixture.stream.streamStatus == .closed)
        }
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `removing from another thread ends the delivery, and empties the mode`(
        kind: StreamKind
    ) throws {
        let thread = try RunLoopThread(name: "streams")
        let mode = RunLoop.Mode("removed from elsewhere")
        let fixture = try Fixture(kind)
        let counter = Counter()
        fixture.stream.delegate = counter
        fixture.stream.schedule(in: thread.runLoop, forMode: .default)
        fixture.stream.schedule(in: thread.runLoop, forMode: mode)
        fixture.stream.open()
        waitUntil { counter.events.value.count == 2 }
        for mode in [.default, mode] { fixture.stream.remove(from: thread.runLoop, forMode: mode) }
        fixture.move(1)
        let result = thread.runLoop.performAndWait { RunLoop.current.run(in: mode, until: .distantPast) }
        #expect(result == .finished && counter.events.value.count == 2)
        thread.stop()
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream may be released on another thread while the loop serves it`(kind: StreamKind) async throws
    {
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "streams")
            for round in 0..<20 {
                let fixture = try Fixture(kind)
                let counter = Counter()
                weak let stream = fixture.stream
                fixture.stream.delegate = counter
                fixture.stream.schedule(in: thread.runLoop, forMode: .default)
                fixture.stream.open()
                if round.isMultiple(of: 2) { waitUntil { !counter.events.value.isEmpty } }
                fixture.releaseStream()
                waitUntil { stream == nil }
            }
            thread.runLoop.performAndWait {}
            thread.stop()
        }
    }

    @Test(arguments: [StreamKind.pipe, .bytes, .boundInput, .file])
    func `a stream on two loops delivers each event once, on one of them at a time`(
        kind: StreamKind
    ) async throws {
        try await onItsOwnThread {
            let threads = [try RunLoopThread(name: "one"), try RunLoopThread(name: "two")]
            let fixture = try Fixture(kind)
            let read = Shared<[UInt8]>([])
            let counter = Counter { stream, event in
                guard event == .hasBytesAvailable else { return }
                let bytes = (stream as! InputStream).read(upTo: 1)
                read.update { $0 += bytes }
            }
            fixture.stream.delegate = counter
            for thread in threads { fixture.stream.schedule(in: thread.runLoop, forMode: .default) }
            fixture.stream.open()
            waitUntil { counter.events.value.last == Stream.Event.endEncountered.rawValue }
            for thread in threads { thread.stop() }
            #expect(read.value == Fixture.content)
            #expect(counter.overlaps.load(ordering: .relaxed) == 0)
            #expect(
                counter.events.value.count { $0 == 1 } == 1 && counter.events.value.count { $0 == 16 } == 1)
        }
    }

    @Test(arguments: [StreamKind.pipe, .bytes, .boundInput, .file])
    func `a stream may change loops in a callback`(kind: StreamKind) throws {
        let threads = [try RunLoopThread(name: "one"), try RunLoopThread(name: "two")]
        let loops = threads.map(\.runLoop)
        let fixture = try Fixture(kind)
        let isOnFirst = Shared<[Bool]>([])
        let counter = Counter { stream, event in
            isOnFirst.update { $0.append(loops[0].isCurrent) }
            if event == .openCompleted {
                stream.remove(from: loops[0], forMode: .default)
                stream.schedule(in: loops[1], forMode: .default)
            }
            if event == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 2) }
        }
        fixture.stream.delegate = counter
        fixture.stream.schedule(in: loops[0], forMode: .default)
        fixture.stream.open()
        waitUntil { counter.events.value.last == Stream.Event.endEncountered.rawValue }
        for thread in threads { thread.stop() }
        #expect(isOnFirst.value.first == true && !isOnFirst.value.dropFirst().contains(true))
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream goes on after its loop's thread has ended`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        let thread = try RunLoopThread(name: "ends")
        fixture.stream.schedule(in: thread.runLoop, forMode: .default)
        fixture.stream.open()
        thread.stop()
        fixture.stream.delegate = recorder
        fixture.stream.schedule(in: .current, forMode: .default)
        RunLoop.current.serve { recorder.events.last == kind.transferEvent }
        #expect(fixture.move(1) == 1)
    }

    @Test func `scheduling and closing at the same time leave no mode occupied`() throws {
        let thread = try RunLoopThread(name: "streams")
        let mode = RunLoop.Mode("fought over")
        for _ in 0..<200 {
            let input = InputStream(data: [1])
            let handed = Carrier(input)
            input.open()
            let start = Shared(false)
            let closer = try JoinableThread(name: "closer") {
                while !start.value {}
                handed.value.close()
            }
            start.value = true
            input.schedule(in: thread.runLoop, forMode: mode)
            closer.join()
        }
        let result = thread.runLoop.performAndWait { RunLoop.current.run(in: mode, until: .distantPast) }
        #expect(result == .finished)
        thread.stop()
    }

    @Test func `a descriptor number that another thread closes may be reused by a new stream`() async throws {
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "streams")
            for byte in UInt8(0)..<50 {
                let pipe = try FileDescriptor.pipe()
                let read = Shared<[UInt8]>([])
                let counter = Counter { stream, event in
                    guard event == .hasBytesAvailable else { return }
                    let bytes = (stream as! InputStream).read(upTo: 10)
                    read.update { $0 += bytes }
                }
                let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
                input.delegate = counter
                input.schedule(in: thread.runLoop, forMode: .default)
                input.open()
                try pipe.writeEnd.writeAll([byte])
                waitUntil { read.value == [byte] }
                input.close()
                try pipe.writeEnd.close()
            }
            thread.stop()
        }
    }

    @Test func `closing a half of a bound pair ends its blocked read`() throws {
        let pair = Stream.boundPair(bufferSize: 4)
        pair.input.open()
        pair.output.open()
        let handed = Carrier(pair.input)
        let closer = try JoinableThread(name: "closer") {
            while handed.value.streamStatus != .reading {}
            handed.value.close()
        }
        var byte: UInt8 = 0
        #expect(pair.input.read(&byte, maxLength: 1) == -1)
        closer.join()
        #expect(pair.input.streamStatus == .closed && pair.input.streamError == nil)
    }

    @Test func `no write uses a lent descriptor after close has returned on another thread`() throws {
        for _ in 0..<200 {
            let (lent, other) = (try FileDescriptor.pipe(), try FileDescriptor.pipe())
            for end in [lent.writeEnd, other.readEnd] { _ = fcntl(end.rawValue, F_SETFL, O_NONBLOCK) }
            nonisolated(unsafe) let stream = OutputStream(descriptor: lent.writeEnd)
            stream.open()
            let started = Shared(false)
            let writer = try JoinableThread {
                var byte: UInt8 = 1
                while stream.write(&byte, maxLength: 1) > 0 { started.value = true }
            }
            waitUntil { started.value }
            stream.close()
            #expect(dup2(other.writeEnd.rawValue, lent.writeEnd.rawValue) >= 0)
            writer.join()
            var byte: UInt8 = 0
            #expect(read(other.readEnd.rawValue, &byte, 1) == -1)
            for end in [lent.readEnd, lent.writeEnd, other.readEnd, other.writeEnd] { try end.close() }
        }
    }
}
