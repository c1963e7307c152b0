import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What is particular to Dispatch queues; ``StreamLifetimeTests`` has what holds in every place.
@Suite(.runLoop) struct StreamQueueTests {
    private let queue = DispatchQueue(label: "events")
    private let loop = RunLoop.current

    @Test(arguments: [StreamKind.bytes, .socket, .memory])
    func `a stream stays on its run loops until it gets a queue`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        let counter = Counter { [queue] _, _ in dispatchPrecondition(condition: .onQueue(queue)) }
        fixture.stream.schedule(in: loop, forMode: .default)
        fixture.stream.setDispatchQueue(nil)
        #expect(loop.poll() == .timedOut)
        fixture.stream.setDispatchQueue(queue)
        #expect(loop.poll() == .finished)
        fixture.stream.delegate = counter
        fixture.stream.open()
        counter.wait { $0 == [1, kind.transferEvent.rawValue] }
        fixture.stream.close()
        queue.sync {}
    }

    enum Ending: CaseIterable, Sendable {
        case close, remove, release, schedule, queue
    }

    @Test(arguments: [StreamKind.bytes, .socket, .memory], Ending.allCases)
    func `an enqueued event is not delivered after the stream has left`(
        kind: StreamKind, ending: Ending
    ) throws {
        let (fixture, counter) = (try Fixture(kind), Counter())
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
            fixture.stream.close()
        case .queue:
            let other = DispatchQueue(label: "other")
            fixture.stream.setDispatchQueue(other)
            counter.wait { $0.count >= 2 }
            fixture.stream.close()
            other.sync {}
        }
        let (count, threads) = (counter.events.value.count, counter.threads.value)
        queue.resume()
        queue.sync {}
        #expect(counter.events.value.count == count && counter.threads.value == threads)
        #expect(count == (ending == .schedule || ending == .queue ? 2 : 0))
        if ending == .schedule { #expect(threads == [UInt(pthread_self())]) }
        fixture.releaseStream()
        try waitForStreamsThread()
        #expect(internals == nil)
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

    /// Repeated: a write in one callback may use up the room that the next one is to report.
    @Test(arguments: [SocketOrigin.ipv4, .descriptor], [true, false])
    func `both halves of a socket deliver on one serial queue`(origin: SocketOrigin, isNarrow: Bool) throws {
        for _ in 0..<5 {
            let fixture = try SocketFixture(origin, isNarrow: isNarrow)
            let pair = Carrier((input: fixture.input!, output: fixture.output!))
            let (waiting, isOver) = (Shared<[UInt8]>([]), Countdown(1))
            let echo = Counter { _, event in
                let (input, output) = pair.value
                if event == .hasBytesAvailable { waiting.value += input.read(upTo: 5000) }
                while output.hasSpaceAvailable, !waiting.value.isEmpty {
                    let count = output.writeOnce(waiting.value.prefix(3000))
                    waiting.update { $0.removeFirst(max(0, count)) }
                }
                guard input.streamStatus == .atEnd, waiting.value.isEmpty else { return }
                for stream in [input, output] as [Stream] { stream.close() }
                isOver.count()
            }
            for stream in fixture.streams { stream.start(echo, on: queue) }
            let (peer, bytes) = (try fixture.peer, pattern(300_000))
            let sender = try JoinableThread(name: "sender") {
                peer.send(bytes)
                peer.shutDown()
            }
            #expect(peer.receiveToEnd() == bytes)
            sender.join()
            isOver.wait()
            #expect(!echo.hasOverlapped)
        }
    }

    @Test func `an event without a read or write keeps no thread busy`() async {
        // In a process of its own, where no other stream is on a queue.
        await #expect(processExitsWith: .success) {
            let (fixture, counter) = (try Fixture(.pipe), Counter())
            fixture.stream.start(counter, on: DispatchQueue(label: "silent"))
            counter.wait { $0.count == 2 }
            try waitForStreamsThread()
            // A thread that spins makes tens of thousands of passes.
            let passes = try streamsLoop().performSynchronously { RunLoop.current.passesInAWhile() }
            try #require(counter.events.value == [1, 2] && passes < 10)
        }
    }
}
