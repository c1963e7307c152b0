import Dispatch
import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// A queue that knows whether the current code runs on it.
private struct MarkedQueue {
    private static let key = DispatchSpecificKey<UInt64>()
    private static let last = Shared<UInt64>(0)
    let queue: DispatchQueue
    private let number: UInt64

    init(_ attributes: DispatchQueue.Attributes = []) {
        queue = DispatchQueue(label: "events", attributes: attributes)
        number = Self.last.update { last in
            last += 1
            return last
        }
        queue.setSpecific(key: Self.key, value: number)
    }

    var isCurrent: Bool { DispatchQueue.getSpecific(key: Self.key) == number }
}

@Suite(.runLoop) struct StreamQueueTests {
    @Test(arguments: StreamKind.allCases)
    func `events are delivered on the queue, once for each read or write`(kind: StreamKind) throws {
        let (marked, fixture) = (MarkedQueue(), try Fixture(kind))
        let isElsewhere = Shared(false)
        let counter = Counter { _, _ in if !marked.isCurrent { isElsewhere.value = true } }
        fixture.stream.delegate = counter
        fixture.stream.setDispatchQueue(marked.queue)
        fixture.stream.open()
        waitUntil { counter.events.value.count == 2 }
        try waitForStreamsThread()
        marked.queue.sync {}
        #expect(counter.events.value == [1, kind.transferEvent.rawValue])
        fixture.move(1)
        waitUntil { counter.events.value.count == 3 }
        fixture.stream.close()
        marked.queue.sync {}
        #expect(
            counter.events.value.dropFirst(2).allSatisfy { $0 == kind.transferEvent.rawValue || $0 == 16 }
        )
        #expect(!isElsewhere.value)
    }

    @Test(arguments: StreamKind.allCases, [true, false])
    func `a stream opened before it gets its queue delivers its events there`(kind: StreamKind, isOpen: Bool)
        async throws
    {
        try await onItsOwnThread {
            let (marked, fixture, counter) = (MarkedQueue(), try Fixture(kind), Counter())
            if isOpen { fixture.stream.open() }
            fixture.stream.setDispatchQueue(marked.queue)
            if !isOpen { fixture.stream.open() }
            fixture.stream.delegate = counter
            fixture.stream.setDispatchQueue(marked.queue)
            waitUntil { counter.events.value.contains(kind.transferEvent.rawValue) }
            fixture.stream.close()
            marked.queue.sync {}
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `closing a stream in its callback delivers no further events`(kind: StreamKind) throws {
        for event in [.openCompleted, kind.transferEvent] as [Stream.Event] {
            let (marked, fixture) = (MarkedQueue(), try Fixture(kind))
            let counter = Counter { stream, received in if received == event { stream.close() } }
            fixture.stream.delegate = counter
            fixture.stream.setDispatchQueue(marked.queue)
            fixture.stream.open()
            waitUntil { fixture.stream.streamStatus == .closed }
            try waitForStreamsThread()
            marked.queue.sync {}
            #expect(counter.events.value.last == event.rawValue)
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream removed from its queue in a callback delivers nothing more`(kind: StreamKind) async throws
    {
        try await onItsOwnThread {
            let (marked, fixture) = (MarkedQueue(), try Fixture(kind))
            let counter = Counter { stream, _ in stream.setDispatchQueue(nil) }
            fixture.stream.delegate = counter
            fixture.stream.setDispatchQueue(marked.queue)
            fixture.stream.open()
            waitUntil { !counter.events.value.isEmpty }
            marked.queue.sync {}
            try waitForStreamsThread()
            marked.queue.sync {}
            #expect(counter.events.value == [1])
            fixture.stream.close()
        }
    }

    @Test(arguments: [StreamKind.bytes, .socket, .memory])
    func `setting no queue leaves a stream on its run loops`(kind: StreamKind) throws {
        let (fixture, counter) = (try Fixture(kind), Counter())
        fixture.stream.delegate = counter
        fixture.stream.schedule(in: .current, forMode: .default)
        fixture.stream.setDispatchQueue(nil)
        fixture.stream.open()
        RunLoop.current.serve { counter.events.value.count >= 2 }
        #expect(counter.threads.value == [UInt(pthread_self())])
        fixture.stream.close()
    }

    enum Ending: CaseIterable, Sendable {
        case close, remove, release, schedule
    }

    @Test(arguments: [StreamKind.bytes, .socket, .memory], Ending.allCases)
    func `an event that is enqueued when the stream is released is not delivered`(
        kind: StreamKind, ending: Ending
    ) throws {
        let (marked, fixture, counter) = (MarkedQueue(), try Fixture(kind), Counter())
        weak let stream = fixture.stream
        weak let internals = fixture.stream.internals
        fixture.stream.delegate = counter
        fixture.stream.setDispatchQueue(marked.queue)
        marked.queue.suspend()
        fixture.stream.open()
        try waitForStreamsThread()
        switch ending {
        case .close: fixture.stream.close()
        case .remove: fixture.stream.setDispatchQueue(nil)
        case .release: fixture.releaseStream()
        case .schedule:
            fixture.stream.schedule(in: .current, forMode: .default)
            // It does not keep the loop running either.
            RunLoop.current.serve { counter.events.value.count >= 2 }
            #expect(counter.threads.value == [UInt(pthread_self())])
            fixture.stream.close()
        }
        #expect((stream == nil) == (ending == .release))
        let before = counter.events.value
        marked.queue.resume()
        marked.queue.sync {}
        #expect(counter.events.value == before && (ending == .schedule) == (before.count == 2))
        fixture.releaseStream()
        try waitForStreamsThread()
        #expect(stream == nil && internals == nil)
    }

    @Test func `a stream may be released in its own callback`() {
        let marked = MarkedQueue()
        let held = Shared<Carrier<[Stream]>>(Carrier([]))
        let counter = Counter { _, _ in held.value = Carrier([]) }
        weak var weakStream: Stream?
        do {
            let stream = InputStream(data: [1])
            weakStream = stream
            held.value = Carrier([stream])
            stream.delegate = counter
            stream.setDispatchQueue(marked.queue)
            stream.open()
        }
        waitUntil { weakStream == nil }
        marked.queue.sync {}
        #expect(counter.events.value == [1] || counter.events.value == [1, 2])
    }

    @Test func `from a loop to a queue, to another, and back to the loop, no byte is lost`() async throws {
        try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()
            let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            let queues = [MarkedQueue(), MarkedQueue(.concurrent)]
            let (read, end) = (Shared<[UInt8]>([]), Answer<Void>())
            let loop = RunLoop.current
            let counter = Counter { stream, event in
                guard event == .hasBytesAvailable else { return event == .endEncountered ? loop.stop() : () }
                let count = read.update { bytes in
                    bytes += (stream as! InputStream).read(upTo: 7)
                    return bytes.count
                }
                switch count / 7 % 3 {
                case 0: stream.schedule(in: loop, forMode: .default)
                case let next:
                    stream.remove(from: loop, forMode: .default)
                    stream.setDispatchQueue(queues[next - 1].queue)
                }
            }
            let writer = try JoinableThread(name: "writer") {
                _ = try? pipe.writeEnd.closeAfter { try pipe.writeEnd.writeAll(pattern(20_000)) }
                end.give(())
            }
            // Something for the loop to run for while the stream is elsewhere.
            let keepAlive = RunLoop.Source {}
            loop.add(keepAlive, forMode: .default)
            input.start(counter)
            while read.value.count < 20_000 || input.streamStatus != .atEnd {
                loop.run(in: .default, until: .now.advanced(by: .milliseconds(50)))
            }
            end.wait()
            writer.join()
            #expect(read.value == pattern(20_000))
            #expect(counter.overlaps.load(ordering: .relaxed) == 0)
            input.close()
        }
    }
}
