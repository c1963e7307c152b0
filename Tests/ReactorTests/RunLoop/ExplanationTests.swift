import Dispatch
import Glibc
import Reactor
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
        let asker = try JoinableThread {
            loop.untilAsleep()
            texts.expectNew(loop.explain(), "default", "1 block", "'custom'")
            loop.stop()
        }
        loop.run(in: .default)
        asker.join()
        let thread = try RunLoopThread(name: "explained")
        thread.stop()
        texts.expectNew(thread.runLoop.explain(), "explained")
    }

    // MARK: Items

    @Test func `a timer explains whether it is in a loop, due, or being called`() {
        let texts = Explanations(of: "'alarm'")
        let timer = Timer(interval: .seconds(100), label: "none") { _ in }
        timer.label = "alarm"
        texts.expectNew(timer.explain())
        loop.add(timer, forMode: .default)
        texts.expectNew(timer.explain(), "not running")
        timer.invalidate()
        texts.expectNew(timer.explain())
        Timer.scheduled(after: .zero, label: "alarm") { texts.expectNew($0.explain()) }
        loop.run(in: .default)
        let never = Timer(fireDate: .distantFuture, interval: .zero, repeats: false, label: "alarm") { _ in }
        loop.add(never, forMode: .default)
        texts.expectNew(never.explain(), "30 years")
        #expect(never.description.contains("30 years"))
    }

    @Test func `an overdue timer explains which mode runs, and in which modes it is`() {
        let texts = Explanations(of: "timer")
        let timer = Timer.scheduled(after: .zero, forMode: .common) { _ in }
        timer.fireDate.busyWait()
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
            onThreads(1) { _ in texts.expectNew(asked.value.explain(), "tracking", "default") }
        }
        loop.poll(.tracking)
        try source.setInterest([])
        texts.expectNew(source.explain())
        try source.setInterest(.readable)
        loop.poll()
        texts.expectNew(source.explain())
    }

    @Test func `listeners, signal sources and datagram sockets name themselves`() throws {
        let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in }
        listener.label = "front"
        let signal = try SignalSource(SIGWINCH) { _, _ in }
        let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in }
        let names = [
            "\(listener.localAddress)", "signal \(SIGWINCH)", "descriptor \(try socket.descriptor.rawValue)",
        ]
        for (source, name) in zip([listener, signal, socket] as [EventSource], names) {
            let texts = Explanations(of: name)
            texts.expectNew(source.explain())
            try loop.add(source, forMode: .default)
            let asked = Carrier(source)
            onThreads(1) { _ in texts.expectNew(asked.value.explain()) }
        }
        #expect(listener.explain().contains("'front'"))
    }

    @Test func `a file watcher, a clock timer and a process's source explain what they wait for`() throws {
        let watcher = try FileWatcher { _, _ in }
        let timer = try ClockTimer(.wallClock, at: nil) { _, _ in }
        let child = try ChildProcess.spawn(.init("sleep", ["1000"])).process
        let process = ProcessSource(child) { _, _ in }
        let sources = [watcher, timer, process] as [EventSource]
        let texts = [
            Explanations(of: "file watcher"), Explanations(of: "wall clock"),
            Explanations(of: "process \(child.processIdentifier)"),
        ]
        let explain = { for (source, texts) in zip(sources, texts) { texts.expectNew(source.explain()) } }
        explain()
        for source in sources { try loop.add(source, forMode: .default) }
        explain()
        let folder = TemporaryFolder()
        try watcher.watch(folder.path)
        texts[0].expectNew(watcher.explain())
        _ = try folder.file("text".utf8)
        timer.fireDate = ClockTimer.Clock.wallClock.now + .seconds(1000)
        try child.send(SIGKILL)
        _ = child.wait()
        explain()
        watcher.close()
        timer.close()
        process.cancel()
        explain()
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
        let start = { (input: InputStream, delegate: any StreamDelegate) in
            input.delegate = delegate
            input.schedule(in: loop, forMode: .default)
            input.open()
        }
        let input = InputStream(descriptor: pipe.readEnd)
        start(input, delegate)
        pipe.put()
        for _ in 0..<3 { loop.poll() }
        texts.expectNew(input.explain(), "hasBytesAvailable")
        let missing = InputStream(path: "/nowhere/at/all")
        start(missing, delegate)
        texts.expectNew(missing.explain(), "/nowhere/at/all", "errorOccurred")
        loop.poll()
        texts.expectNew(missing.explain(), "/nowhere/at/all")
        let misnamed = Misnamed()
        let ignored = InputStream(descriptor: pipe.readEnd)
        start(ignored, misnamed)
        for _ in 0..<3 { loop.poll() }
        texts.expectNew(ignored.explain(), "stream(_:handle:)")
        _ = ignored.read(upTo: 16)
        texts.expectNew(ignored.explain())
        let source = InputStream(descriptor: pipe.readEnd)
        let reader = LineReader(source, into: 0, on: DispatchQueue(label: "lines")) { _, _, _ in }
        reader.start { _ in }
        texts.expectNew(source.explain(), "hand-off")
        reader.cancel()
        withExtendedLifetime((delegate, misnamed)) {}
    }
}

/// Has only a method of another name.
private final class Misnamed: StreamDelegate {
    func stream(_ stream: Stream, handleEvent event: Stream.Event) {}
}
