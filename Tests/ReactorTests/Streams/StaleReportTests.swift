import Dispatch
import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// Events are about bytes that are there: a report of the kernel that is older than a read is not one.
@Suite(.runLoop) struct StaleReportTests {
    /// Reads what is there, and counts the events for which nothing was there.
    private final class Reader: StreamDelegate, Sendable {
        let descriptor: FileDescriptor
        let events = Atomic(0)
        let falseEvents = Atomic(0)
        let bytesRead = Atomic(0)
        let beforeReading: @Sendable (_ event: Int) -> Void

        init(_ descriptor: FileDescriptor, beforeReading: @escaping @Sendable (Int) -> Void = { _ in }) {
            (self.descriptor, self.beforeReading) = (descriptor, beforeReading)
        }

        func stream(_ stream: Stream, handle event: Stream.Event) {
            guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
            let number = events.add(1, ordering: .relaxed).newValue
            guard isReadable else {
                falseEvents.add(1, ordering: .sequentiallyConsistent)
                return
            }
            read(input)
            beforeReading(number)
            if isReadable { read(input) }
        }

        /// Waits for `count` bytes; false if there was a false event, which is not repeated.
        func waits(for count: Int) -> Bool {
            waitUntil {
                bytesRead.load(ordering: .sequentiallyConsistent) == count
                    || falseEvents.load(ordering: .sequentiallyConsistent) > 0
            }
            return falseEvents.load(ordering: .sequentiallyConsistent) == 0
        }

        private func read(_ input: InputStream) {
            let count = input.read(upTo: 1000).count
            bytesRead.add(count, ordering: .sequentiallyConsistent)
        }

        private var isReadable: Bool {
            var entry = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
            return poll(&entry, 1, 0) == 1
        }
    }

    @Test(arguments: [RunLoop.Mode.default, .tracking])
    func `bytes that a delegate reads after a nested run are not reported again`(mode: RunLoop.Mode)
        async throws
    {
        try await onItsOwnThread { [name = mode.rawValue] in
            let (loop, one, other) = (RunLoop.current, try TestPipe(), try TestPipe())
            let (first, second) = (
                InputStream(descriptor: one.readEnd), InputStream(descriptor: other.readEnd)
            )
            let reader = Reader(one.readEnd) { event in
                guard event == 1 else { return }
                // The nested run ends with the other stream, and leaves the report of this one for later.
                other.put()
                one.put()
                RunLoop.current.run(mode: RunLoop.Mode(rawValue: name), before: .minutesAway)
            }
            let otherReader = Reader(other.readEnd)
            for (stream, delegate) in [(second, otherReader), (first, reader)] {
                stream.delegate = delegate
                stream.schedule(in: loop, forMode: .common)
                stream.open()
            }
            loop.poll()
            one.put()
            for mode in [RunLoop.Mode.default, .default, .tracking, .default] { loop.poll(mode) }
            #expect(reader.bytesRead.load(ordering: .relaxed) == 2)
            #expect(reader.falseEvents.load(ordering: .relaxed) == 0)
            for stream in [first, second] { stream.close() }
        }
    }

    @Test func `bytes that are read in one mode are not reported by what another mode has left over`()
        async throws
    {
        try await onItsOwnThread {
            let (loop, pipes) = (RunLoop.current, [try TestPipe(), try TestPipe()])
            let readers = pipes.map { Reader($0.readEnd) }
            let streams = pipes.map { InputStream(descriptor: $0.readEnd) }
            for (stream, reader) in zip(streams, readers) {
                stream.delegate = reader
                stream.schedule(in: loop, forMode: .common)
                stream.open()
            }
            for mode in [RunLoop.Mode.tracking, .default] { loop.poll(mode) }
            for _ in 0..<3 {
                for pipe in pipes { pipe.put() }
                // Serves one stream, and leaves the other for later.
                loop.run(mode: .tracking, before: .minutesAway)
                loop.poll(.default)
                loop.poll(.tracking)
            }
            #expect(readers.map { $0.bytesRead.load(ordering: .relaxed) } == [3, 3])
            #expect(readers.map { $0.falseEvents.load(ordering: .relaxed) } == [0, 0])
            for stream in streams { stream.close() }
        }
    }

    @Test func `bytes that a stream on two loops has read on one are not reported on the other`() throws {
        let threads = [try RunLoopThread(name: "one"), try RunLoopThread(name: "two")]
        let pipe = try TestPipe()
        let (stream, reader) = (InputStream(descriptor: pipe.readEnd), Reader(pipe.readEnd))
        stream.delegate = reader
        for thread in threads { stream.schedule(in: thread.runLoop, forMode: .default) }
        stream.open()
        for count in 1...5000 {
            pipe.put()
            guard reader.waits(for: count) else { break }
        }
        #expect(reader.falseEvents.load(ordering: .relaxed) == 0)
        stream.close()
        for thread in threads { thread.stop() }
    }

    @Test func `bytes that a stream has read on one loop are not reported on the next`() throws {
        let threads = [try RunLoopThread(name: "one"), try RunLoopThread(name: "two")]
        let pipe = try TestPipe()
        let (stream, reader) = (InputStream(descriptor: pipe.readEnd), Reader(pipe.readEnd))
        stream.delegate = reader
        stream.schedule(in: threads[0].runLoop, forMode: .default)
        stream.open()
        for count in 1...5000 {
            pipe.put()
            let (from, to) = (threads[1 - count % 2], threads[count % 2])
            stream.schedule(in: to.runLoop, forMode: .default)
            stream.remove(from: from.runLoop, forMode: .default)
            guard reader.waits(for: count) else { break }
        }
        #expect(reader.falseEvents.load(ordering: .relaxed) == 0)
        stream.close()
        for thread in threads { thread.stop() }
    }

    @Test func `bytes that a stream has read on a queue are not reported on a loop`() throws {
        let thread = try RunLoopThread(name: "one")
        let (pipe, queue) = (try TestPipe(), DispatchQueue(label: "reader"))
        let (stream, reader) = (InputStream(descriptor: pipe.readEnd), Reader(pipe.readEnd))
        stream.delegate = reader
        stream.setDispatchQueue(queue)
        stream.open()
        for count in 1...5000 {
            pipe.put()
            if count % 2 == 0 {
                stream.setDispatchQueue(queue)
            } else {
                stream.schedule(in: thread.runLoop, forMode: .default)
            }
            guard reader.waits(for: count) else { break }
        }
        #expect(reader.falseEvents.load(ordering: .relaxed) == 0)
        stream.close()
        thread.stop()
    }
}
