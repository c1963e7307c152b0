import Dispatch
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// What another thread learns: while a loop is stuck, only other threads can ask.
@Suite(.runLoop) struct OtherThreadExplanationTests {
    @Test func `an event source answers another thread`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            try await onItsOwnThread {
                let loop = RunLoop.current
                let pipe = try TestPipe()
                pipe.put()
                let source = DescriptorSource(pipe.readEnd, for: .readable, label: "bell") { source, _ in
                    nonisolated(unsafe) let asked = source
                    try? onAThread {
                        #expect(asked.explain().hasSuffix(" 'bell' is being called."))
                    }
                    source.cancel()
                }
                nonisolated(unsafe) let asked = source
                try onAThread { #expect(asked.explain().contains(" 'bell' is in no run loop")) }
                try loop.add(source, forMode: .tracking)
                let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in
                } faults: { _, _ in
                }
                try loop.add(listener, forMode: .default)
                nonisolated(unsafe) let front = listener
                let holder = loop.hold(.default)
                loop.perform {
                    try? onAThread {
                        #expect(asked.explain().hasSuffix(" runs in default, and it is only in tracking."))
                        #expect(asked.explain().contains(" 'bell' has something to report: the run loop "))
                        #expect(
                            front.explain().hasPrefix("The listener at \(front.localAddress) has nothing"))
                    }
                }
                loop.poll()
                holder.invalidate()
                loop.poll(.tracking)
                try onAThread { #expect(asked.explain().contains("has been cancelled or closed")) }
                listener.close()
            }
        }
        #expect(result != nil)
    }

    @Test func `a block that the next pass runs waits in no other mode`() async throws {
        let text = try await onItsOwnThread { () -> String in
            let (loop, text) = (RunLoop.current, Shared(""))
            loop.perform {
                try? onAThread {
                    loop.perform(inModes: [.default, .tracking]) {}
                    text.value = loop.explain()
                }
            }
            loop.poll()
            return text.value
        }
        #expect(text.hasSuffix(" 1 block or executor waits for its next pass."))
    }

    @Test func `blocks that a nested run has taken in for the outer mode are counted`() async throws {
        let text = try await onItsOwnThread { () -> String in
            let (loop, text) = (RunLoop.current, Shared(""))
            loop.hold(.custom)
            loop.perform {
                for _ in 0..<3 { loop.perform(inModes: [.default, .tracking]) {} }
                loop.poll(.custom)
                loop.perform {}
                text.value = loop.explain()
            }
            loop.poll()
            return text.value
        }
        #expect(text.hasSuffix(" is busy in default. 4 blocks or executors wait for its next pass."))
    }

    @Test func `a hand-off of a loop that has ended was cancelled`() async throws {
        let pipe = try TestPipe()
        let reader = try await onItsOwnThread {
            let reader = LineReader(InputStream(descriptor: pipe.readEnd), into: 0, on: .global()) {
                _, _, _ in
            }
            reader.start { _ in }
            RunLoop.current.poll()
            return reader
        }
        waitUntil { reader.explain() == "The hand-off was cancelled, as its loop has ended." }
    }

    @Test func `blocks are counted in their own modes`() async throws {
        let texts = try await onItsOwnThread { () -> [String] in
            let (loop, texts) = (RunLoop.current, Shared<[String]>([]))
            loop.hold(.tracking)
            loop.perform(inModes: [.tracking]) {
                try? onAThread {
                    for _ in 0..<12 { loop.perform {} }
                    texts.update { $0.append(loop.explain()) }
                    loop.perform(inModes: [.tracking]) {}
                    loop.perform(inModes: [.common]) {}
                    texts.update { $0.append(loop.explain()) }
                }
            }
            loop.poll(.tracking)
            loop.poll()
            return texts.value
        }
        #expect(texts[0].hasSuffix(" is busy in tracking. 12 blocks or executors wait for default."))
        #expect(
            texts[1].hasSuffix(
                " is busy in tracking. 2 blocks or executors wait for its next pass. 12 blocks or executors wait for default."
            ))
    }

    @Test func `a handler that has run the blocks of another mode counts them no more`() async throws {
        let text = try await onItsOwnThread { () -> String in
            let (loop, text) = (RunLoop.current, Shared(""))
            loop.hold(.default)
            loop.perform(inModes: [.custom]) {}
            loop.perform {
                loop.poll(.custom)
                try? onAThread { text.value = loop.explain() }
            }
            loop.poll()
            return text.value
        }
        #expect(text.hasSuffix(" is busy in default."))
    }

    @Test func `a hand-off knows its modes`() throws {
        let loop = RunLoop.current
        let pipe = try TestPipe()
        let input = InputStream(descriptor: pipe.readEnd)
        let queue = DispatchQueue(label: "lines")
        let reader = LineReader(input, into: 0, on: queue) { _, _, _ in }
        reader.label = "orders"
        reader.start { _ in loop.stop() }
        loop.poll()
        loop.hold(.tracking)
        let idle = Shared("")
        let ready = Shared("")
        loop.perform(inModes: [.tracking]) { idle.value = reader.explain() }
        loop.poll(.tracking)
        pipe.put()
        loop.perform(inModes: [.tracking]) { ready.value = reader.explain() }
        loop.poll(.tracking)
        let only = " runs in tracking, and the hand-off is only in default."
        #expect(
            idle.value.hasPrefix("The hand-off 'orders' waits for bytes of its stream. The run loop "))
        #expect(idle.value.hasSuffix(only), "\(idle.value)")
        #expect(ready.value.hasPrefix("The hand-off 'orders' has bytes to read: the run loop "))
        #expect(ready.value.hasSuffix(only), "\(ready.value)")
        reader.cancel()
        waitUntil { reader.explain().contains("has ended") }
        #expect(
            reader.explain().hasPrefix(
                "The hand-off 'orders' has ended, and its completion waits: the run loop ")
        )
        loop.run(in: .default)
        #expect(reader.explain() == "The hand-off 'orders' has ended.")
    }

    @Test func `a source says that it is being performed`() {
        let (loop, text) = (RunLoop.current, Shared(""))
        let itself = Shared<RunLoop.Source?>(nil)
        let source = RunLoop.Source { text.value = itself.value?.explain() ?? "" }
        itself.value = source
        loop.add(source, forMode: .default)
        source.signal()
        loop.poll()
        itself.value = nil
        #expect(text.value == "The source is being performed.")
    }

    @Test func `asking a stream on another thread never destroys its delegate there`() async throws {
        let places = Shared<Set<Bool>>([])
        let isOver = Shared(false)
        try await onItsOwnThread {
            let (loop, pipe) = (RunLoop.current, try TestPipe())
            let input = InputStream(descriptor: pipe.readEnd)
            input.schedule(in: loop, forMode: .default)
            input.open()
            nonisolated(unsafe) let asked = input
            let asker = try JoinableThread { while !isOver.value { _ = asked.explain() } }
            for _ in 0..<20_000 {
                let delegate = Leaving { places.update { _ = $0.insert(loop.isCurrent) } }
                input.delegate = delegate
            }
            isOver.value = true
            asker.join()
            input.close()
        }
        #expect(places.value == [true])
    }

    @Test func `a stream that a task has used needs no delegate`() async throws {
        try await withRunLoopThread(name: "task") { thread in
            let (loop, pipe) = (thread.runLoop, try TestPipe())
            let input = loop.performAndWait {
                let input = Carrier(InputStream(descriptor: pipe.readEnd))
                input.value.schedule(in: .current, forMode: .default)
                input.value.open()
                return input
            }
            pipe.put()
            let task = Task(executorPreference: thread.executor) { _ = try await input.value.readChunk() }
            try await task.value
            #expect(input.value.explain().hasSuffix(" is used by a task, which waits for nothing now."))
            loop.performAndWait { input.value.close() }
        }
    }

    @Test func `a descriptor that was closed under its source is named`() async {
        // In a process of its own, where no other test takes the number meanwhile.
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                let ends = try FileDescriptor.pipe()
                let source = DescriptorSource(ends.readEnd, for: .readable) { _, _ in }
                try RunLoop.current.add(source, forMode: .default)
                let copy = try ends.readEnd.duplicate()
                let watched = DescriptorSource(copy, for: .readable) { _, _ in }
                try RunLoop.current.add(watched, forMode: .default)
                try copy.close()
                #expect(
                    watched.explain()
                        == "The source of descriptor \(copy.rawValue) can report nothing: its descriptor is closed. "
                        + "Cancel a source before its descriptor is closed.")
            }
        }
    }

    @Test func `what was in a loop that has ended says so`() async throws {
        let texts = try await onItsOwnThread { () -> [String] in
            let (timer, free) = (Shared<Timer?>(nil), Timer(interval: .seconds(100)) { _ in })
            let source = RunLoop.Source {}
            let event = Shared<[Carrier<DescriptorSource>]>([])
            let pipe = try TestPipe()
            try onAThread {
                timer.value = Timer.scheduled(after: .seconds(100)) { _ in }
                RunLoop.current.add(free, forMode: .default)
                RunLoop.current.add(source, forMode: .default)
                let bell = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
                try RunLoop.current.add(bell, forMode: .default)
                event.value = [Carrier(bell)]
            }
            return [
                timer.value!.explain(), free.explain(), source.explain(), event.value[0].value.explain(),
            ]
        }
        for text in texts { #expect(text.contains("its loop has ended"), "\(text)") }
    }
}

/// Tells when it is destroyed.
private final class Leaving: StreamDelegate {
    private let body: () -> Void

    init(_ body: @escaping () -> Void) { self.body = body }

    deinit { body() }

    func stream(_ stream: Stream, handle event: Stream.Event) {}
}
