import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// A descriptor number that belongs to another file by the time its loop learns of it.
@Suite(.runLoop) struct DescriptorReuseTests {
    private let old: TestPipe
    private let new: TestPipe

    init() throws { (old, new) = (try TestPipe(), try TestPipe()) }

    /// Makes the number of the old pipe's read end one of the new pipe's.
    private func replaceOld() { #expect(dup2(new.readEnd.rawValue, old.readEnd.rawValue) >= 0) }

    @Test func `a number closed and reused in a callback delivers events of the new file only`() throws {
        let (first, second, loop) = (Recorder(), Recorder(), RunLoop.current)
        let streams = [InputStream(descriptor: old.readEnd), InputStream(descriptor: old.readEnd)]
        first.onEvent = { [self] stream, event in
            guard event == .hasBytesAvailable else { return }
            stream.close()
            replaceOld()
            streams[1].start(second)
        }
        streams[0].start(first)
        old.put()
        loop.serve { second.events == [.openCompleted] }
        loop.settle()
        #expect(second.events == [.openCompleted])
        new.put()
        loop.serve { second.events == [.openCompleted, .hasBytesAvailable] }
        #expect(streams[1].read(upTo: 5).count == 1 && first.events == second.events)
        streams[1].close()
    }

    @Test(arguments: [true, false])
    func `a number closed and reused elsewhere delivers events of the new file`(isLoopBusy: Bool) throws {
        let thread = try RunLoopThread(name: "served")
        let kept = try old.readEnd.duplicate()
        let (first, second, gate) = (Counter(), Counter(), Countdown(1))
        let streams = [InputStream(descriptor: old.readEnd), InputStream(descriptor: old.readEnd)]
        streams[0].start(first, on: thread.runLoop)
        first.wait { $0 == [1] }
        if isLoopBusy { thread.runLoop.perform { gate.wait() } }
        streams[0].close()
        replaceOld()
        streams[1].start(second, on: thread.runLoop)
        gate.count()
        second.wait { $0 == [1] }
        old.put()
        thread.runLoop.performAndWait { RunLoop.current.settle() }
        #expect(second.events.value == [1])
        new.put()
        second.wait { $0 == [1, 2] }
        streams[1].close()
        thread.stop()
        try kept.close()
    }

    @Test func `the number of an owned descriptor that another thread closes can be reused at once`() throws {
        let thread = try RunLoopThread(name: "served")
        for _ in 0..<50 {
            let (pipe, counter) = (try FileDescriptor.pipe(), Counter())
            let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            input.start(counter, on: thread.runLoop)
            try pipe.writeEnd.writeAll([1])
            counter.wait { $0 == [1, 2] }
            input.close()
            try pipe.writeEnd.close()
        }
        thread.stop()
    }
}

/// A stream that another thread than its loop's closes, while a duplicate of its descriptor keeps the file
/// open: the kernel must not report the number any more.
@Suite(.runLoop) struct DeregistrationTests {
    enum Ending: CaseIterable {
        case close, closeLent, release, removeAndClose
    }

    /// Schedules a stream on `loop`, and closes it on this thread.
    private static func end(_ stream: consuming InputStream, of loop: RunLoop, by ending: Ending) {
        let counter = Counter()
        stream.start(counter, on: loop)
        counter.wait { $0 == [1] }
        switch ending {
        case .close, .closeLent: stream.close()
        case .release: break
        case .removeAndClose:
            stream.remove(from: loop, forMode: .default)
            stream.close()
        }
    }

    @Test(arguments: Ending.allCases)
    func `a loop sleeps though bytes arrive for a stream closed elsewhere`(ending: Ending) throws {
        let (thread, pipe) = (try RunLoopThread(name: "served"), try FileDescriptor.pipe())
        let (kept, isLent) = (try pipe.readEnd.duplicate(), ending == .closeLent)
        Self.end(
            InputStream(descriptor: pipe.readEnd, closeWhenDone: !isLent), of: thread.runLoop, by: ending)
        try pipe.writeEnd.writeAll([1])
        #expect(thread.runLoop.performAndWait { RunLoop.current.passesInAWhile() } < 20)
        thread.stop()
        for end in [kept, pipe.writeEnd] { try end.close() }
        if isLent { try pipe.readEnd.close() }
    }

    @Test func `a loop sleeps when it runs after another thread has closed its stream`() throws {
        let (pipe, recorder, loop) = (try FileDescriptor.pipe(), Recorder(), RunLoop.current)
        let kept = try pipe.readEnd.duplicate()
        nonisolated(unsafe) let stream = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        stream.start(recorder)
        loop.serve { recorder.events == [.openCompleted] }
        loop.settle()
        try JoinableThread { stream.close() }.join()
        try pipe.writeEnd.writeAll([1])
        loop.hold(.default)
        #expect(loop.passesInAWhile() < 20)
        for end in [kept, pipe.writeEnd] { try end.close() }
    }

    @Test func `closing one stream of a borrowed socket elsewhere leaves the other its events`() throws {
        let (thread, (peer, own)) = (try RunLoopThread(name: "served"), try SocketPeer.pair())
        // Fills the socket, so that the loop watches it for room.
        let writer = Counter { stream, event in
            if event == .hasSpaceAvailable { _ = (stream as! OutputStream).writeOnce(pattern(4_000_000)) }
        }
        let reader = Counter()
        let (input, output) = (InputStream(descriptor: own), OutputStream(descriptor: own))
        input.start(reader, on: thread.runLoop)
        output.start(writer, on: thread.runLoop)
        writer.wait { $0.contains(Stream.Event.hasSpaceAvailable.rawValue) }
        thread.runLoop.performAndWait { RunLoop.current.settle() }
        output.close()
        peer.send([1])
        reader.wait { $0 == [1, 2] }
        input.close()
        thread.stop()
        try own.close()
    }
}

/// Events are about bytes that are there: a report of the kernel that is older than a read is not one.
@Suite(.runLoop) struct StaleReportTests {
    private struct Tally: Equatable {
        var events = 0
        var bytesRead = 0
        /// The events for which nothing was there.
        var falseEvents = 0
    }

    /// Reads what is there.
    private final class Reader: StreamDelegate, Sendable {
        let pipe: TestPipe
        let tally = Shared(Tally())
        let beforeReading: @Sendable (_ event: Int) -> Void

        init(_ pipe: TestPipe, beforeReading: @escaping @Sendable (Int) -> Void = { _ in }) {
            (self.pipe, self.beforeReading) = (pipe, beforeReading)
        }

        func stream(_ stream: Stream, handle event: Stream.Event) {
            guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
            let isFalse = !isReadable
            let number = tally.update {
                $0.events += 1
                if isFalse { $0.falseEvents += 1 }
                return $0.events
            }
            if isFalse { return }
            read(input)
            beforeReading(number)
            if isReadable { read(input) }
        }

        private func read(_ input: InputStream) {
            let count = input.read(upTo: 1000).count
            tally.update { $0.bytesRead += count }
        }

        private var isReadable: Bool {
            var entry = pollfd(fd: pipe.readEnd.rawValue, events: Int16(POLLIN), revents: 0)
            return poll(&entry, 1, 0) == 1
        }
    }

    @Test(arguments: [RunLoop.Mode.default, .tracking])
    func `bytes that a delegate reads after a nested run are not reported again`(mode: RunLoop.Mode) throws {
        let (loop, one, other, name) = (RunLoop.current, try TestPipe(), try TestPipe(), mode.rawValue)
        let reader = Reader(one) { event in
            guard event == 1 else { return }
            // The nested run ends with the other stream, and leaves the report of this one for later.
            other.put()
            one.put()
            RunLoop.current.run(mode: RunLoop.Mode(rawValue: name), before: .minutesAway)
        }
        let streams = [other, one].map { InputStream(descriptor: $0.readEnd) }
        let readers = [Reader(other), reader]
        for (stream, reader) in zip(streams, readers) { stream.start(reader, mode: .common) }
        loop.poll()
        one.put()
        for mode in [RunLoop.Mode.default, .default, .tracking, .default] { loop.poll(mode) }
        #expect(readers.map(\.tally.value.bytesRead) == [1, 2])
        #expect(readers.allSatisfy { $0.tally.value.falseEvents == 0 })
        for stream in streams { stream.close() }
    }

    @Test func `bytes read in one mode are not reported by what another mode has left over`() throws {
        let (loop, pipes) = (RunLoop.current, [try TestPipe(), try TestPipe()])
        let readers = pipes.map { Reader($0) }
        let streams = pipes.map { InputStream(descriptor: $0.readEnd) }
        for (stream, reader) in zip(streams, readers) { stream.start(reader, mode: .common) }
        for mode in [RunLoop.Mode.tracking, .default] { loop.poll(mode) }
        for _ in 0..<3 {
            for pipe in pipes { pipe.put() }
            // Serves one stream, and leaves the other for later.
            loop.run(mode: .tracking, before: .minutesAway)
            loop.poll(.default)
            loop.poll(.tracking)
        }
        #expect(readers.allSatisfy { $0.tally.value == Tally(events: 3, bytesRead: 3) })
        for stream in streams { stream.close() }
    }

    @Test func `bytes that another thread reads before their report is served are not reported`() throws {
        let (loop, pipes) = (RunLoop.current, [try TestPipe(), try TestPipe()])
        nonisolated(unsafe) let streams = pipes.map { InputStream(descriptor: $0.readEnd) }
        let readers = pipes.indices.map { index in
            // Called first, it has another thread read the stream that is served next.
            Reader(pipes[index]) { _ in
                try? JoinableThread { _ = streams[1 - index].read(upTo: 10) }.join()
            }
        }
        for (stream, reader) in zip(streams, readers) { stream.start(reader) }
        loop.settle()
        for pipe in pipes { pipe.put() }
        loop.settle()
        #expect(readers.map(\.tally.value.events).sorted() == [0, 1])
        for stream in streams { stream.close() }
    }

    enum Place: CaseIterable {
        case twoLoops, nextLoop, queueAndLoop
    }

    @Test(arguments: Place.allCases)
    func `bytes that a stream has read in one place are not reported in another`(place: Place) throws {
        let threads = [try RunLoopThread(name: "one"), try RunLoopThread(name: "two")]
        let (pipe, queue) = (try TestPipe(), DispatchQueue(label: "reader"))
        let (stream, reader) = (InputStream(descriptor: pipe.readEnd), Reader(pipe))
        stream.start(reader, on: threads[0].runLoop)
        if place == .twoLoops { stream.schedule(in: threads[1].runLoop, forMode: .default) }
        for count in 1...roundCount {
            pipe.put()
            switch place {
            case .twoLoops: break
            case .nextLoop:
                stream.schedule(in: threads[count % 2].runLoop, forMode: .default)
                stream.remove(from: threads[1 - count % 2].runLoop, forMode: .default)
            case .queueAndLoop:
                if count % 2 == 1 {
                    stream.setDispatchQueue(queue)
                } else {
                    stream.schedule(in: threads[0].runLoop, forMode: .default)
                }
            }
            reader.tally.wait { $0.bytesRead == count || $0.falseEvents > 0 ? () : nil }
            guard reader.tally.value.falseEvents == 0 else { break }
        }
        #expect(reader.tally.value.falseEvents == 0)
        stream.close()
        for thread in threads { thread.stop() }
    }

    private let roundCount = Depth.of(full: 5000, quick: 500)
}
