import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// The explanations of one item: its name is in each of them, and each state has another one.
final class Explanations: Sendable {
    private let name: String
    private let texts = Shared<[String]>([])

    init(of name: String) { self.name = name }

    /// Expects that `text` names the item and contains `parts`, which are names of modes and numbers.
    func expectNew(_ text: String, _ parts: String..., sourceLocation: SourceLocation = #_sourceLocation) {
        for part in [name] + parts {
            #expect(text.contains(part), "\(part) in: \(text)", sourceLocation: sourceLocation)
        }
        let known = texts.update { texts in
            defer { texts.append(text.filter { !$0.isNumber }) }
            return texts
        }
        #expect(!known.contains(text.filter { !$0.isNumber }), "\(text)", sourceLocation: sourceLocation)
    }
}

/// The numbers that are words of `text`.
func numbers(in text: String) -> [Int] { text.split(separator: " ").compactMap { Int($0) } }

@Suite(.runLoop) struct ExplanationTests {
    private let loop = RunLoop.current

    // MARK: Loops

    @Test func `a loop explains whether it runs, in which mode, and how many blocks wait for which`() throws {
        let texts = Explanations(of: "run loop")
        for _ in 0..<2 { loop.perform {} }
        texts.expectNew(loop.explain(), "default", "2 blocks")
        loop.poll()
        loop.perform(inModes: [.custom]) {}
        loop.perform { texts.expectNew(loop.explain(), "default", "1 block", "'custom'") }
        loop.hold(.default)
        loop.poll()
        let thread = try RunLoopThread(name: "explained")
        thread.stop()
        texts.expectNew(thread.runLoop.explain(), "explained")
    }

    // MARK: Items

    @Test func `a timer explains what keeps it from firing, and that it is called`() {
        let texts = Explanations(of: "'alarm'")
        let timer = Timer(fireDate: .now, label: "none") { timer in texts.expectNew(timer.explain()) }
        timer.label = "alarm"
        texts.expectNew(timer.explain())
        loop.add(timer, forMode: .common)
        timer.fireDate = .now + .seconds(100)
        texts.expectNew(timer.explain(), "not running")
        timer.fireDate = .distantPast
        texts.expectNew(timer.explain(), "not running")
        loop.remove(timer, forMode: .default)
        loop.perform { texts.expectNew(timer.explain(), "default", "tracking") }
        loop.poll()
        loop.remove(timer, forMode: .tracking)
        loop.perform { texts.expectNew(timer.explain(), "default", "no mode") }
        loop.poll()
        loop.add(timer, forMode: .default)
        loop.perform(inModes: [.default]) {
            texts.expectNew(timer.explain(), "next pass")
            onThreads(1) { _ in texts.expectNew(timer.explain(), "busy") }
        }
        loop.poll()
        texts.expectNew(timer.explain())
        let never = Timer(fireDate: .distantFuture, interval: .zero, repeats: false, label: "alarm") { _ in }
        loop.add(never, forMode: .default)
        texts.expectNew(never.explain(), "30 years")
        #expect(never.description.contains("30 years"))
    }

    @Test func `a source explains whether it is signalled, and that a signal does not wake its loop`() throws
    {
        let texts = Explanations(of: "'inbox'")
        let itself = Shared<RunLoop.Source?>(nil)
        let source = RunLoop.Source(label: "inbox") { texts.expectNew(itself.value?.explain() ?? "") }
        texts.expectNew(source.explain())
        loop.add(source, forMode: .default)
        texts.expectNew(source.explain())
        source.signal()
        texts.expectNew(source.explain(), "not running")
        itself.value = source
        loop.poll()
        itself.value = nil
        let asker = try JoinableThread {
            loop.untilAsleep()
            source.signal()
            texts.expectNew(source.explain(), "wakeUp()")
            loop.stop()
        }
        loop.run(in: .default)
        asker.join()
        source.invalidate()
        texts.expectNew(source.explain())
    }

    @Test func `an observer explains what it is called for, and what keeps it from that`() {
        let texts = Explanations(of: "'idle'")
        let observer = RunLoop.Observer(for: [.entry, .exit], repeats: false, label: "idle") { observer, _ in
            texts.expectNew(observer.explain())
        }
        texts.expectNew(observer.explain())
        loop.add(observer, forMode: .custom)
        texts.expectNew(observer.explain(), "entry", "exit", "not running")
        loop.perform(order: 0) { texts.expectNew(observer.explain(), "default", "'custom'") }
        loop.poll()
        loop.perform(order: 0, inModes: [.outer]) {
            loop.add(observer, forMode: .outer)
            texts.expectNew(observer.explain(), "'outer'")
        }
        loop.poll(.outer)
        texts.expectNew(observer.explain())
    }

    @Test func `a mailbox explains how many messages wait, and for what`() {
        let texts = Explanations(of: "'answers'")
        let mailbox = Mailbox<Int>(label: "answers") { mailbox, number in
            guard number == 1 else { return }
            mailbox.post(3)
            texts.expectNew(mailbox.explain(), "1 message")
        }
        let explain = { @Sendable (parts: String) in
            onThreads(1) { _ in texts.expectNew(mailbox.explain(), parts) }
        }
        explain("")
        for number in 1...2 { mailbox.post(number) }
        explain("2 messages")
        loop.perform(inModes: [.custom]) {
            texts.expectNew(mailbox.explain(), "2 messages", "'custom'", "default")
        }
        loop.poll(.custom)
        loop.poll()
        mailbox.close()
        explain("closed")
    }

    @Test func `a descriptor source explains whether its descriptor is ready`() throws {
        let pipe = try TestPipe()
        let texts = Explanations(of: "descriptor \(pipe.readEnd.rawValue) 'bell'")
        let source = DescriptorSource(pipe.readEnd, for: .readable, label: "bell") { source, _ in
            texts.expectNew(source.explain())
            let asked = Carrier(source)
            onThreads(1) { _ in #expect(asked.value.explain().contains("being called")) }
            source.cancel()
        }
        texts.expectNew(source.explain())
        try loop.add(source, forMode: .default)
        texts.expectNew(source.explain(), "not running")
        pipe.put()
        texts.expectNew(source.explain(), "not running")
        let asked = Carrier(source)
        loop.perform(inModes: [.tracking]) {
            texts.expectNew(asked.value.explain(), "tracking", "default")
            onThreads(1) { _ in texts.expectNew(asked.value.explain(), "busy", "tracking") }
        }
        loop.poll(.tracking)
        try source.setInterest([])
        texts.expectNew(source.explain())
        try source.setInterest(.readable)
        loop.poll()
        texts.expectNew(source.explain())
    }

    @Test func `a connection explains both directions of a delegate, and without one how far it has come`()
        throws
    {
        final class Ignorer: ConnectionDelegate {
            func connection(_ connection: Connection, handle event: Connection.Event) {}
        }
        let connection = Connection(to: .ipv4Loopback(port: 9))
        #expect(connection.explain().contains("127.0.0.1:9 is not open, and has no delegate"))
        connection.open(delegate: Ignorer())
        defer { connection.close() }
        let lines = connection.explain().split(separator: "\n")
        try #require(lines.count == 2)
        #expect(lines[0].contains("input stream of 127.0.0.1:9"), "\(lines)")
        #expect(lines[1].contains("output stream of 127.0.0.1:9"), "\(lines)")
    }

    @Test func `sources of events name themselves, and explain anew what they wait for in a loop`() throws {
        let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in }
        listener.label = "front"
        let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in }
        let child = try ChildProcess.spawn(.init("sleep", ["1000"])).process
        let sources: [(EventSource, name: String)] = [
            (listener, "'front'"),
            (socket, "descriptor \(try #require(socket.descriptor).rawValue)"),
            (try SignalSource(.windowSizeChange) { _, _ in }, "SIGWINCH"),
            (try FileWatcher { _, _ in }, "file watcher"),
            (try ClockTimer(.wallClock, at: nil) { _, _ in }, "wall clock"),
            (ProcessSource(child) { _, _ in }, "process \(child.processIdentifier)"),
        ]
        for (source, name) in sources {
            let texts = Explanations(of: name)
            texts.expectNew(source.explain())
            try loop.add(source, forMode: .default)
            let asked = Carrier(source)
            onThreads(1) { _ in texts.expectNew(asked.value.explain()) }
        }
        try child.send(.kill)
        _ = child.wait()
    }

    // MARK: Hand-offs

    @Test func `a hand-off explains what it waits for`() throws {
        let queue = DispatchQueue(label: "suspended")
        queue.suspend()
        let pipe = try TestPipe()
        let reader = LineReader(InputStream(descriptor: pipe.readEnd), into: 0, on: queue) { _, _, _ in }
        reader.label = "orders"
        let texts = Explanations(of: "'orders'")
        texts.expectNew(reader.explain())
        reader.start { _ in loop.stop() }
        texts.expectNew(reader.explain(), "not running")
        loop.perform(order: 0, inModes: [.tracking]) {
            texts.expectNew(reader.explain(), "tracking", "default")
            pipe.put(5)
            texts.expectNew(reader.explain(), "tracking", "default")
        }
        loop.poll(.tracking)
        loop.run(in: .default, returnAfterSourceHandled: true)
        #expect(reader.waitingByteCount == 5)
        texts.expectNew(reader.explain())
        reader.suspend()
        texts.expectNew(reader.explain())
        reader.cancel()
        loop.run(in: .default)
        #expect(reader.waitingByteCount == 0)
        texts.expectNew(reader.explain())
        queue.resume()
    }

    // MARK: Streams

    @Test func `a stream explains what is missing, in the order in which a client adds it`() throws {
        let pipe = try TestPipe()
        let texts = Explanations(of: "descriptor \(pipe.readEnd.rawValue) 'users'")
        let delegate = HandlerDelegate { stream, event in
            guard event == .hasBytesAvailable else { return }
            texts.expectNew(stream.explain())
            _ = (stream as? InputStream)?.read(upTo: 16)
        }
        let input = InputStream(descriptor: pipe.readEnd)
        input.label = "users"
        texts.expectNew(input.explain(), "open()")
        input.open()
        texts.expectNew(input.explain(), "delegate")
        input.delegate = delegate
        texts.expectNew(input.explain(), "schedule(in:forMode:)")
        input.schedule(in: loop, forMode: .tracking)
        texts.expectNew(input.explain(), "openCompleted", "not running")
        let explainInDefaultMode = {
            loop.perform(order: 0) { texts.expectNew(input.explain(), "default", "tracking") }
            loop.poll()
            loop.poll(.tracking)
        }
        explainInDefaultMode()
        texts.expectNew(input.explain(), "not running")
        pipe.put()
        explainInDefaultMode()
        input.close()
        texts.expectNew(input.explain(), "closed")
    }

    @Test func `a stream explains that it waits for a read, has failed, or belongs to a hand-off`() throws {
        let pipe = try TestPipe()
        let texts = Explanations(of: "input stream")
        let delegate = HandlerDelegate { _, _ in }
        let start = { (input: InputStream) in
            input.delegate = delegate
            input.schedule(in: loop, forMode: .default)
            input.open()
        }
        let input = InputStream(descriptor: pipe.readEnd)
        start(input)
        pipe.put()
        for _ in 0..<3 { loop.poll() }
        texts.expectNew(input.explain(), "hasBytesAvailable")
        _ = input.read(upTo: 16)
        texts.expectNew(input.explain())
        let missing = InputStream(path: "/nowhere/at/all")
        start(missing)
        texts.expectNew(missing.explain(), "/nowhere/at/all", "errorOccurred")
        loop.poll()
        texts.expectNew(missing.explain(), "/nowhere/at/all")
        let source = InputStream(descriptor: pipe.readEnd)
        let reader = LineReader(source, into: 0, on: DispatchQueue(label: "lines")) { _, _, _ in }
        reader.start { _ in }
        texts.expectNew(source.explain(), "hand-off")
        reader.cancel()
        withExtendedLifetime(delegate) {}
    }

    // MARK: Posted blocks

    @Test func `blocks are counted by their modes, those of the next pass apart, until they have run`() {
        for mode in [RunLoop.Mode.custom, .custom, .common] { loop.perform(inModes: [mode]) {} }
        loop.hold(.outer)
        loop.poll(.outer)
        #expect(numbers(in: loop.explain()) == [1, 2])
        loop.poll(.custom)
        #expect(numbers(in: loop.explain()) == [1])
        loop.poll()
        #expect(numbers(in: loop.explain()) == [])
        loop.perform(inModes: [.tracking]) {
            onThreads(1) { _ in
                for _ in 0..<12 { loop.perform {} }
                loop.perform(inModes: [.tracking]) {}
                loop.perform(inModes: [.common]) {}
                // The running mode is enough: these wait in no other.
                loop.perform(inModes: [.default, .tracking]) {}
            }
            #expect(numbers(in: loop.explain()) == [3, 12])
        }
        loop.poll(.tracking)
    }

    @Test func `blocks that a nested run has taken in for the outer mode, or has run, are counted right`() {
        loop.hold(.custom)
        loop.perform(inModes: [.custom]) {}
        loop.perform {
            for _ in 0..<3 { loop.perform(inModes: [.default, .tracking]) {} }
            #expect(numbers(in: loop.explain()) == [3, 1])
            loop.poll(.custom)
            loop.perform {}
            #expect(numbers(in: loop.explain()) == [4])
        }
        loop.poll()
    }

    // MARK: On another thread

    @Test func `asking a stream on another thread never destroys its delegate there`() throws {
        let places = Shared<Set<Bool>>([])
        let isOver = Shared(false)
        let pipe = try TestPipe()
        let input = InputStream(descriptor: pipe.readEnd)
        input.schedule(in: loop, forMode: .default)
        input.open()
        let asked = Carrier(input)
        let asker = try JoinableThread { while !isOver.value { _ = asked.value.explain() } }
        for _ in 0..<5_000 {
            let canary = AtEnd { [loop] in places.update { _ = $0.insert(loop.isCurrent) } }
            let delegate = HandlerDelegate { _, _ in withExtendedLifetime(canary) {} }
            input.delegate = delegate
        }
        isOver.value = true
        asker.join()
        input.close()
        #expect(places.value == [true])
    }

    @Test func `a descriptor that was closed under its source is named`() async {
        // In a process of its own, where no other test takes the number meanwhile.
        await #expect(processExitsWith: .success) {
            try onAThread {
                let pipe = try TestPipe()
                let copy = try pipe.readEnd.duplicate()
                for descriptor in [pipe.readEnd, copy] {
                    let source = DescriptorSource(descriptor, for: .readable) { _, _ in }
                    try RunLoop.current.add(source, forMode: .default)
                    let before = source.explain()
                    if descriptor == copy { try copy.close() }
                    #expect((source.explain() != before) == (descriptor == copy))
                }
            }
        }
    }

    @Test(arguments: [Kind.source, .descriptor, .timer])
    func `an item explains that its loop has ended, and is not told to be added to one`(kind: Kind) throws {
        let item = Answer<Carrier<any TestItem>>()
        try onAThread {
            let made = try kind.makeItem {}
            try made.add(to: .current, .default)
            item.give(Carrier(made))
        }
        let explanation = item.wait().value.explain()
        #expect(explanation.contains("ended"), "\(explanation)")
        #expect(!RunLoop.Source {}.explain().contains("ended"))
    }
}
