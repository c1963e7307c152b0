import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What another thread learns of a loop: the loop's own answer, or, while it is stuck, what can be read without it.
@Suite(.runLoop) struct QuestionTests {
    private let loop = RunLoop.current

    // MARK: Loops that answer

    @Test func `a loop that sleeps answers as on its own thread, and goes on sleeping`() throws {
        loop.hold(.default)
        loop.perform(inModes: [.custom]) {}
        loop.perform(order: 0, inModes: [.custom, .outer]) {}
        let pipe = try TestPipe()
        let source = DescriptorSource(pipe.readEnd, for: .readable, label: "bell") { _, _ in }
        try loop.add(source, forMode: .custom)
        let asked = Carrier(source)
        let asker = try loop.whenAsleep {
            waitUntil { numbers(in: loop.explain()) == [1, 1] }
            waitUntil { asked.value.explain().contains("'custom'") }
            waitUntil { loop.debugDescription.contains("'bell'") }
            loop.untilAsleep()
            loop.stop()
        }
        #expect(loop.run(in: .default) == .stopped)
        asker.join()
    }

    @Test func `a loop that an observer or a nested run keeps busy answers between the callbacks`() throws {
        loop.hold(.default)
        loop.hold(.inner)
        loop.perform(inModes: [.custom]) {}
        loop.observe(.beforeSources, in: .inner) { _ in loop.wakeUp() }
        let asker = try JoinableThread {
            waitUntil { loop.currentMode == .inner }
            waitUntil { loop.explain().contains("'custom'") }
            loop.stop()
        }
        loop.perform { loop.run(in: .inner) }
        loop.poll()
        asker.join()
    }

    @Test func `a source that is changed and served while others ask it answers each of them`() throws {
        let pipe = try TestPipe()
        let isOver = Shared(false)
        let source = DescriptorSource(pipe.readEnd, for: .readable, label: "bell") { _, _ in pipe.get() }
        try loop.add(source, forMode: .default)
        let asked = Carrier(source)
        let askers = try (0..<2).map { _ in
            try JoinableThread {
                while !isOver.value { #expect(asked.value.explain().contains("'bell'")) }
            }
        }
        for round in 0..<2_000 {
            pipe.put()
            try source.setInterest(round % 2 == 0 ? [.readable] : [])
            source.label = "bell"
            loop.poll()
            if round % 100 == 0 {
                loop.remove(source, forMode: .default)
                try loop.add(source, forMode: .default)
            }
        }
        source.cancel()
        isOver.value = true
        for asker in askers { asker.join() }
    }

    // MARK: Loops that do not

    /// What another thread is told of the loop while it is stuck in the calling callback.
    private func explanationElsewhere() -> String {
        let text = Shared("")
        onThreads(1) { _ in text.value = loop.explain() }
        return text.value
    }

    @Test func `of a stuck loop the mode, the kind of its callback, and the number of blocks are known`()
        throws
    {
        let texts = Shared<[String]>([])
        let note = { @Sendable [self] in texts.update { [text = explanationElsewhere()] in $0.append(text) } }
        let pipe = try TestPipe()
        pipe.put()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
            note()
            source.cancel()
        }
        try loop.add(source, forMode: .custom)
        Timer.scheduled(after: .zero, forMode: .custom) { _ in note() }
        loop.perform(inModes: [.custom]) { note() }
        let signalled = RunLoop.Source { note() }
        loop.add(signalled, forMode: .custom)
        signalled.signal()
        loop.perform(order: 0, inModes: [.custom]) { note() }
        loop.perform(inModes: [.outer]) {}
        loop.poll(.custom)
        #expect(texts.value.count == 5)
        for kind in ["descriptor \(pipe.readEnd.rawValue)", "a timer", "block", "source", "observer"] {
            #expect(texts.value.contains { $0.contains(kind) }, "\(texts.value)")
        }
        for text in texts.value {
            #expect(text.contains("not answered") && text.contains("'custom'"), "\(text)")
            #expect(!numbers(in: text).filter { $0 > 0 }.isEmpty, "\(text)")
        }
    }

    @Test func `after a nested run its callback is named again`() {
        loop.hold(.inner)
        Timer.scheduled(after: .zero) { _ in
            loop.perform(inModes: [.inner]) {}
            loop.poll(.inner)
            let text = explanationElsewhere()
            #expect(text.contains("a timer") && text.contains("default"), "\(text)")
        }
        loop.poll()
    }

    @Test func `loops that ask each other do not wait for ever`() throws {
        let threads = try ["one", "other"].map { try RunLoopThread(name: $0) }
        let (texts, arrived) = (Shared<[String]>([]), Shared(0))
        for (thread, other) in zip(threads, threads.reversed()) {
            thread.runLoop.perform {
                arrived.update { $0 += 1 }
                waitUntil { arrived.value == 2 }
                texts.update { [text = other.runLoop.explain()] in $0.append(text) }
            }
        }
        waitUntil { texts.value.count == 2 }
        for text in texts.value { #expect(text.contains("default"), "\(text)") }
        for thread in threads { thread.stop() }
    }

    @Test func `a loop that has never run, or has ended, says so`() throws {
        let (made, isOver) = (Answer<RunLoop>(), Answer<Void>())
        let idle = try JoinableThread {
            RunLoop.current.perform {}
            made.give(.current)
            isOver.wait()
        }
        let other = made.wait()
        #expect(other.explain().contains("never run") && numbers(in: other.explain()).last == 1)
        isOver.give(())
        idle.join()
        #expect(other.explain().contains("ended"))
    }
}
