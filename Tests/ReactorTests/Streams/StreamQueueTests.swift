import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamQueueTests {
    private let queue = DispatchQueue(label: "events")
    private let loop = RunLoop.current

    @Test(arguments: StreamKind.allCases)
    func `events are delivered on the queue, once for each read or write`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        let counter = Counter { [queue] _, _ in dispatchPrecondition(condition: .onQueue(queue)) }
        fixture.stream.start(counter, on: queue)
        counter.wait { $0.count == 2 }
        try waitForStreamsThread()
        queue.sync {}
        #expect(counter.events.value == [1, kind.transferEvent.rawValue])
        fixture.move(1)
        counter.wait { $0.count == 3 }
        fixture.stream.close()
        queue.sync {}
        #expect(
            counter.events.value.dropFirst(2).allSatisfy { [kind.transferEvent.rawValue, 16].contains($0) })
    }

    @Test(arguments: StreamKind.allCases, [true, false])
    func `a stream may be open when it gets its queue`(kind: StreamKind, isOpen: Bool) throws {
        let (fixture, counter) = (try Fixture(kind), Counter())
        if isOpen { fixture.stream.open() }
        fixture.stream.setDispatchQueue(queue)
        fixture.stream.open()
        fixture.stream.start(counter, on: queue)
        counter.wait { $0.contains(kind.transferEvent.rawValue) }
        fixture.stream.close()
        queue.sync {}
    }

    @Test(arguments: StreamKind.allCases, [true, false])
    func `a stream may be closed or removed in its callback`(kind: StreamKind, closes: Bool) throws {
        for event in [.openCompleted, kind.transferEvent] as [Stream.Event] {
            let fixture = try Fixture(kind)
            let counter = Counter { stream, received in
                guard received == event else { return }
                if closes { stream.close() } else { stream.setDispatchQueue(nil) }
            }
            fixture.stream.start(counter, on: queue)
            counter.wait { $0.contains(event.rawValue) }
            queue.sync {}
            try waitForStreamsThread()
            queue.sync {}
            #expect(counter.events.value.last == event.rawValue)
            #expect((fixture.stream.streamStatus == .closed) == closes)
        }
    }

    @Test(arguments: [StreamKind.bytes, .socket, .memory])
    func `a stream stays on its run loops until it gets a queue`(kind: StreamKind) throws {
        let (fixture, counter) = (try Fixture(kind), Counter())
        fixture.stream.schedule(in: loop, forMode: .default)
        fixture.stream.setDispatchQueue(nil)
        fixture.stream.delegate = counter
        fixture.stream.open()
        loop.serve { counter.events.value.count >= 2 }
        #expect(counter.threads.value == [UInt(pthread_self())])
        fixture.stream.setDispatchQueue(queue)
        #expect(loop.poll(.default) == .finished)
    }

    enum Ending: CaseIterable, Sendable {
        case close, remove, release, schedule
    }

    @Test(arguments: [StreamKind.bytes, .socket, .memory], Ending.allCases)
    func `an enqueued event is not delivered after the stream has left`(
        kind: StreamKind, ending: Ending
    ) throws {
        let (fixture, counter) = (try Fixture(kind), Counter())
        weak let stream = fixture.stream
        weak let internals = fixture.stream.internals
        queue.suspend()
        fixture.stream.start(counter, on: queue)
        try waitForStreamsThread()
        switch ending {
        case .close: fixture.stream.close()
        case .remove: fixture.stream.setDispatchQueue(nil)
        case .release: fixture.releaseStream()
        case .schedule:
            fixture.stream.schedule(in: loop, forMode: .default)
            loop.serve { counter.events.value.count >= 2 }
            #expect(counter.threads.value == [UInt(pthread_self())])
            fixture.stream.close()
        }
        #expect((stream == nil) == (ending == .release))
        let before = counter.events.value
        queue.resume()
        queue.sync {}
        #expect(counter.events.value == before && (ending == .schedule) == (before.count == 2))
        fixture.releaseStream()
        try waitForStreamsThread()
        #expect(stream == nil && internals == nil)
    }

    @Test func `a stream may be released in its own callback`() {
        let held = Shared<Carrier<[Stream]>>(Carrier([InputStream(data: [1])]))
        weak let stream = held.value.value.first
        let counter = Counter { _, _ in held.value = Carrier([]) }
        stream?.start(counter, on: queue)
        waitUntil { stream == nil }
        queue.sync {}
        #expect(counter.events.value.first == 1 && !counter.events.value.contains(16))
    }

    @Test func `from a loop to a queue, to another, and back to the loop, no byte is lost`() throws {
        let pipe = try FileDescriptor.pipe()
        let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        let (queues, read) = (
            [queue, DispatchQueue(label: "concurrent", attributes: .concurrent)], Shared<[UInt8]>([])
        )
        let counter = Counter { [loop] stream, event in
            if event == .endEncountered { loop.perform { loop.stop() } }
            guard event == .hasBytesAvailable else { return }
            let count = read.update { bytes in
                bytes += (stream as! InputStream).read(upTo: 7)
                return bytes.count
            }
            switch count / 7 % 3 {
            case 0: stream.schedule(in: loop, forMode: .default)
            case let next:
                stream.remove(from: loop, forMode: .default)
                stream.setDispatchQueue(queues[next - 1])
            }
        }
        let writer = try JoinableThread(name: "writer") {
            _ = try? pipe.writeEnd.closeAfter { try pipe.writeEnd.writeAll(pattern(20_000)) }
        }
        // Something for the loop to run for while the stream is elsewhere.
        loop.hold(.default)
        input.start(counter, on: loop)
        #expect(loop.run(in: .default) == .stopped)
        writer.join()
        #expect(read.value == pattern(20_000) && !counter.hasOverlapped)
        input.close()
    }
}

@Suite(.runLoop) struct StreamQueueTrafficTests {
    /// Echoes all bytes, with both halves on one queue, and closes both after the end.
    private final class Echo: StreamDelegate, Sendable {
        private let waiting = Shared<(bytes: [UInt8], isAtEnd: Bool)>(([], false))
        let isOver = Answer<Bool>()
        private let pair: Carrier<(input: InputStream, output: OutputStream)>

        init(_ fixture: SocketFixture) { pair = Carrier((fixture.input, fixture.output)) }

        func start() {
            let queue = DispatchQueue(label: "both halves")
            for stream in [pair.value.input, pair.value.output] { stream.start(self, on: queue) }
        }

        func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
            let (input, output) = pair.value
            switch eventCode {
            case .hasBytesAvailable:
                let bytes = input.read(upTo: 5000)
                waiting.update { $0.bytes += bytes }
            case .endEncountered: waiting.update { $0.isAtEnd = true }
            case .errorOccurred: return isOver.give(false)
            default: break
            }
            while output.hasSpaceAvailable, case let bytes = waiting.value.bytes, !bytes.isEmpty {
                let count = output.writeOnce(bytes.prefix(3000))
                guard count > 0 else { return isOver.give(false) }
                waiting.update { $0.bytes.removeFirst(count) }
            }
            guard waiting.update({ $0.isAtEnd && $0.bytes.isEmpty }) else { return }
            for stream in [input, output] as [Stream] { stream.close() }
            isOver.give(true)
        }
    }

    /// Repeated: a write in one callback may use up the room that the next one is to report.
    @Test(arguments: [SocketOrigin.ipv4, .descriptor], [true, false])
    func `both halves of a socket deliver on one serial queue`(origin: SocketOrigin, isNarrow: Bool) throws {
        for _ in 0..<5 {
            let fixture = try SocketFixture(origin, isNarrow: isNarrow)
            let echo = Echo(fixture)
            echo.start()
            let (peer, bytes) = (try fixture.peer, pattern(300_000))
            let sender = try JoinableThread(name: "sender") {
                peer.send(bytes)
                peer.shutDown()
            }
            #expect(peer.receiveToEnd() == bytes)
            sender.join()
            #expect(echo.isOver.wait())
        }
    }

    @Test(arguments: [true, false])
    func `a concurrent queue calls the delegate once at a time and in order`(isSocket: Bool) throws {
        let ends = try (isSocket ? EndsKind.socket : .pipe).makeEnds()
        let input =
            isSocket
            ? Stream.connection(descriptor: ends.read, closeWhenDone: true).input
            : InputStream(descriptor: ends.read, closeWhenDone: true)
        let read = Shared<[UInt8]>([])
        let counter = Counter { stream, event in
            guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
            // Several at a time: the last read may find nothing, and wait for the writer.
            for _ in 0..<2 where input.hasBytesAvailable {
                let bytes = input.read(upTo: 11)
                read.update { $0 += bytes }
            }
        }
        input.start(counter, on: .global())
        try ends.write.closeAfter {
            for piece in stride(from: 0, to: 30_000, by: 30) {
                _ = try ends.write.writeAll(pattern(30_000)[piece..<piece + 30])
                if piece % 7 == 0 { sched_yield() }
            }
        }
        counter.waitForEnd()
        #expect(read.value == pattern(30_000) && !counter.hasOverlapped)
        input.close()
    }

    @Test func `an event without a read or write keeps no thread busy`() async {
        // In a process of its own, where no other stream is on a queue.
        await #expect(processExitsWith: .success) {
            let (fixture, counter) = (try Fixture(.pipe), Counter())
            fixture.stream.start(counter, on: DispatchQueue(label: "silent"))
            counter.wait { $0.count == 2 }
            try waitForStreamsThread()
            let passes = Answer<Int>()
            try streamsLoop().performAndWait {
                var count = 0
                let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in count += 1 }
                RunLoop.current.add(observer, forMode: .default)
                Timer.scheduled(after: .milliseconds(20)) { _ in passes.give(count) }
            }
            // A thread that spins makes tens of thousands of passes.
            let count = passes.wait()
            try #require(counter.events.value == [1, 2] && count < 10)
        }
    }
}
