import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ExplanationTests {
    // MARK: Loops

    @Test func `a loop says what it is doing, and what waits`() async throws {
        let (idle, running, waiting, ended) = try await onItsOwnThread {
            () -> (String, [String], String, String) in
            let loop = RunLoop.current
            loop.perform {}
            loop.perform {}
            let idle = loop.explain()
            let texts = Shared<[String]>([])
            loop.poll()
            loop.perform(inModes: [.custom]) {}
            loop.perform { texts.update { $0.append(loop.explain()) } }
            loop.hold(.default)
            loop.poll()
            let asker = try JoinableThread {
                waitUntil { loop.isWaiting }
                texts.update { $0.append(loop.explain()) }
                loop.stop()
            }
            loop.run(in: .default)
            asker.join()
            let thread = try RunLoopThread(name: "explained")
            thread.stop()
            waitUntil { thread.runLoop.explain().contains("has ended") }
            return (idle, [texts.value[0]], texts.value[1], thread.runLoop.explain())
        }
        #expect(idle.hasSuffix(" is not running. 2 blocks or executors wait for default."))
        #expect(running[0].hasSuffix(" is busy in default. 1 block or executor waits for 'custom'."))
        #expect(waiting.hasSuffix(" is waiting in default. 1 block or executor waits for 'custom'."))
        #expect(ended.hasSuffix("has ended with its thread."))
    }

    @Test func `another thread learns of blocks for other modes, until they have run`() async throws {
        let texts = try await onItsOwnThread {
            let (loop, texts) = (RunLoop.current, Shared<[String]>([]))
            func explainElsewhere() throws { try onAThread { texts.update { $0.append(loop.explain()) } } }
            for mode in [RunLoop.Mode.custom, .custom, .common] { loop.perform(inModes: [mode]) {} }
            loop.hold(.outer)
            loop.poll(.outer)
            try explainElsewhere()
            loop.poll(.custom)
            try explainElsewhere()
            loop.poll()
            try explainElsewhere()
            return texts.value
        }
        #expect(
            texts[0].hasSuffix(
                " 1 block or executor waits for the common modes. 2 blocks or executors wait for 'custom'."
            ))
        #expect(texts[1].hasSuffix(" is not running. 1 block or executor waits for the common modes."))
        #expect(texts[2].hasSuffix(" is not running."))
    }

    @Test func `a hosted loop says that it waits for its host`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            trace(loop.explain())
            let timer = Timer.scheduled(after: .zero) { _ in }
            waitUntil { timer.fireDate < .now }
            trace(timer.explain())
            try onAThread {
                loop.perform {}
                trace(loop.explain())
            }
            hosting.dispatch()
            loop.perform(inModes: [.custom]) { trace(loop.explain()) }
            loop.poll(.custom)
            hosting.end()
        }
        #expect(trace[0].hasSuffix(" is waiting in default, hosted by another event loop."))
        #expect(trace[1].hasSuffix(" serves it when its host calls dispatch()."))
        #expect(
            trace[2].hasSuffix(
                "hosted by another event loop. 1 block or executor waits for its host to call dispatch()."))
        #expect(trace[3].hasSuffix(" is busy in 'custom'."))
    }

    @Test func `an executor says why its jobs wait`() async throws {
        try await withRunLoopThread(name: "explained") { thread in
            let loop = thread.runLoop
            let executor = loop.executor(inModes: [.custom])
            waitUntil { loop.currentMode == .default }
            #expect(executor.explain().hasSuffix(" in 'custom' has no jobs queued."))
            let task = Task(executorPreference: executor) {}
            waitUntil { executor.explain().contains("queued: ") }
            #expect(executor.explain().hasSuffix(" runs in default, and it is only in 'custom'."))
            loop.perform { RunLoop.current.run(in: .custom, until: .distantPast) }
            await task.value
        }
    }

    // MARK: Timers

    @Test func `a timer says that it is invalid, in no loop, not due, or being called`() async throws {
        let trace = try await traced { loop, trace in
            let timer = Timer(interval: .seconds(100)) { _ in }
            trace(timer.explain())
            loop.add(timer, forMode: .default)
            trace(timer.explain())
            timer.invalidate()
            trace(timer.explain())
            Timer.scheduled(after: .zero) { trace($0.explain()) }
            loop.run(in: .default)
        }
        #expect(trace[0].contains("is in no run loop"))
        #expect(trace[1].hasPrefix("The timer is due in ") && trace[1].hasSuffix(" is not running."))
        #expect(trace[2].contains("is invalid"))
        #expect(trace[3] == "The closure of the timer is being called.")
    }

    @Test func `a timer of the distant future says no number`() async throws {
        let trace = try await traced { loop, trace in
            let timer = Timer(fireDate: .distantFuture, interval: .zero, repeats: false) { _ in }
            loop.add(timer, forMode: .default)
            trace(timer.explain())
            trace(timer.description)
        }
        #expect(trace[0].hasPrefix("The timer is due in more than 30 years, but "))
        #expect(trace[1] == "timer: in more than 30 years")
    }

    @Test func `an item that was removed from one common mode names the others`() async throws {
        let trace = try await traced { loop, trace in
            let timer = Timer.scheduled(after: .zero, forMode: .common) { _ in }
            loop.remove(timer, forMode: .default)
            waitUntil { timer.fireDate < .now }
            loop.perform { trace(timer.explain()) }
            loop.poll()
            loop.remove(timer, forMode: .tracking)
            loop.perform { trace(timer.explain()) }
            loop.poll()
        }
        #expect(trace[0].hasSuffix(" runs in default, and the timer is only in tracking."))
        #expect(trace[1].hasSuffix(" runs in default, and the timer is in no mode."))
    }

    @Test func `an overdue timer names the mode that runs and the timer's own`() async throws {
        let trace = try await traced { loop, trace in
            let timer = Timer.scheduled(after: .zero) { _ in }
            waitUntil { timer.fireDate < .now }
            trace(timer.explain())
            loop.perform(inModes: [.tracking]) { trace(timer.explain()) }
            loop.run(in: .tracking, until: .distantPast)
            loop.add(timer, forMode: .tracking)
            loop.perform(inModes: [.tracking]) { trace(timer.explain()) }
            loop.run(in: .tracking, until: .distantPast)
        }
        #expect(trace[0].hasPrefix("The timer has been due for ") && trace[0].hasSuffix(" is not running."))
        #expect(trace[1].hasSuffix(" runs in tracking, and the timer is only in default."))
        #expect(trace[2].hasSuffix(" serves it in its next pass."))
    }

    @Test func `another thread learns that the loop is busy`() throws {
        let loop = RunLoop.current
        let text = Answer<String>()
        let timer = Timer.scheduled(after: .zero) { _ in }
        let started = Answer<Bool>()
        let asker = try JoinableThread {
            _ = started.wait()
            text.give(timer.explain())
        }
        loop.perform {
            waitUntil { timer.fireDate < .now }
            started.give(true)
            #expect(text.wait().hasSuffix(" is busy."))
        }
        loop.poll()
        asker.join()
    }

    // MARK: Sources

    @Test func `a signalled source says that its loop has to be woken`() throws {
        let loop = RunLoop.current
        let source = RunLoop.Source {}
        #expect(source.explain().contains("is in no run loop"))
        loop.add(source, forMode: .default)
        #expect(source.explain().contains("has not been signalled"))
        source.signal()
        #expect(source.explain().hasSuffix(" is not running."))
        loop.poll()
        let asker = try JoinableThread {
            waitUntil { loop.isWaiting }
            source.signal()
            #expect(source.explain().hasSuffix(", so call wakeUp() after it."))
            loop.stop()
        }
        loop.run(in: .default)
        asker.join()
        source.invalidate()
        #expect(source.explain() == "The source has been invalidated.")
    }

    @Test func `an observer says what it is called for, and what keeps it from that`() async throws {
        let trace = try await traced { loop, trace in
            let observer = RunLoop.Observer(for: [.entry, .exit], repeats: false, label: "idle") {
                observer, _ in
                trace(observer.explain())
            }
            trace(observer.explain())
            loop.add(observer, forMode: .custom)
            trace(observer.explain())
            Timer.scheduled(after: .zero) { _ in trace(observer.explain()) }
            loop.run(in: .default)
            Timer.scheduled(after: .zero, forMode: .outer) { _ in
                loop.add(observer, forMode: .outer)
                trace(observer.explain())
            }
            loop.run(in: .outer)
            trace(observer.explain())
        }
        #expect(trace[0].hasPrefix("The observer 'idle' is in no run loop: "))
        #expect(trace[1].hasPrefix("The observer 'idle' is called for entry and exit: "))
        #expect(trace[1].hasSuffix(" is not running."))
        #expect(trace[2].hasSuffix(" runs in default, and the observer is only in 'custom'."))
        #expect(trace[3].hasSuffix(" is running in 'outer'."))
        #expect(trace[4] == "The closure of the observer 'idle' is being called.")
        #expect(trace[5].contains(" is invalid: "))
    }

    @Test func `a mailbox says how many messages wait, and for what`() async throws {
        let texts = try await onItsOwnThread {
            let (loop, texts) = (RunLoop.current, Shared<[String]>([]))
            let mailbox = Mailbox<Int>(label: "answers") { mailbox, number in
                if number == 1 { mailbox.post(3) }
                texts.update { $0.append(mailbox.explain()) }
            }
            func explainElsewhere() throws { try onAThread { texts.update { $0.append(mailbox.explain()) } } }
            try explainElsewhere()
            mailbox.post(1)
            mailbox.post(2)
            try explainElsewhere()
            loop.perform(inModes: [.custom]) { texts.update { $0.append(mailbox.explain()) } }
            loop.poll(.custom)
            loop.poll()
            mailbox.close()
            try explainElsewhere()
            return texts.value
        }
        try #require(texts.count >= 6)
        #expect(texts[0] == "The mailbox 'answers' has no messages.")
        #expect(
            texts[1].hasPrefix("The mailbox 'answers' has 2 messages: ")
                && texts[1].hasSuffix(" is not running."))
        #expect(texts[2].hasSuffix(" runs in 'custom', and it is only in default."))
        #expect(
            texts[3]
                == "The handler of the mailbox 'answers' is being called, and 1 message waits for the next pass."
        )
        #expect(texts.last == "The mailbox 'answers' is closed, or its loop has ended.")
    }

    @Test func `a lookup says that it waits for the answer, or for the loop`() async throws {
        let texts = try await onItsOwnThread {
            let (loop, texts) = (RunLoop.current, Shared<[String]>([]))
            let lookup = Resolver.resolve(host: "127.0.0.1", port: 1, inModes: [.custom]) { _ in }
            texts.update { $0.append(lookup.explain()) }
            loop.hold(.default)
            loop.perform { texts.update { $0.append(lookup.explain()) } }
            loop.poll()
            loop.poll(.custom)
            texts.update { $0.append(lookup.explain()) }
            let cancelled = Resolver.resolve(host: "localhost", port: 1) { _ in }
            texts.update { $0.append(cancelled.explain()) }
            cancelled.cancel()
            texts.update { $0.append(cancelled.explain()) }
            return texts.value
        }
        #expect(texts[0].hasPrefix("The lookup of 127.0.0.1 has its answer: "))
        #expect(texts[0].hasSuffix(" is not running."))
        #expect(texts[1].hasSuffix(" runs in default, and it is only in 'custom'."))
        #expect(texts[2].hasPrefix("The lookup of 127.0.0.1 is over: "))
        #expect(texts[3].hasPrefix("The lookup of localhost "))
        #expect(texts[4].hasPrefix("The lookup of localhost is over: "))
    }

    @Test func `a descriptor source says whether its descriptor is ready`() throws {
        let loop = RunLoop.current
        let pipe = try TestPipe()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
            #expect(source.explain().hasPrefix("The handler of the source of descriptor "))
            source.cancel()
        }
        #expect(source.explain().contains("is in no run loop"))
        try loop.add(source, forMode: .default)
        #expect(
            source.explain().contains("has nothing to report: the descriptor is not readable, and the "))
        pipe.put()
        #expect(source.explain().contains("has something to report: the "))
        try source.setInterest([])
        #expect(source.explain().contains("watches for nothing"))
        try source.setInterest(.readable)
        loop.poll()
        #expect(source.explain().contains("has been cancelled"))
    }

    @Test func `listeners, signal sources and datagram sockets name themselves`() throws {
        let loop = RunLoop.current
        let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in
        } faults: { _, _ in
        }
        try loop.add(listener, forMode: .default)
        #expect(
            listener.explain().hasPrefix("The listener at \(listener.localAddress) has nothing to report")
        )
        let signal = try SignalSource(SIGWINCH) { _, _ in }
        try loop.add(signal, forMode: .default)
        #expect(signal.explain().hasPrefix("The source of signal \(SIGWINCH) has nothing to report"))
        let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in
        } events: { _, _ in
        }
        try loop.add(socket, forMode: .default)
        let descriptor = try socket.descriptor.rawValue
        #expect(socket.explain().hasPrefix("The datagram socket of descriptor \(descriptor) has nothing"))
        #expect(socket.explain().contains("no datagram has arrived"))
    }

    @Test func `a file watcher, a clock timer and a process's source say what they wait for`() throws {
        let loop = RunLoop.current
        let watcher = try FileWatcher { _, _ in }
        let timer = try ClockTimer(.wallClock, at: nil) { _, _ in }
        let child = try ChildProcess.spawn(.init("sleep", ["1000"])).process
        let process = ProcessSource(child) { _, _ in }
        for source in [watcher, timer, process] as [EventSource] {
            #expect(source.explain().contains("is in no run loop"))
        }
        try loop.add(watcher, forMode: .default)
        try loop.add(timer, forMode: .default)
        try loop.add(process, forMode: .default)
        let nothing = " has nothing to report: "
        #expect(watcher.explain().hasPrefix("The file watcher\(nothing)it watches no path, and "))
        let folder = TemporaryFolder()
        try watcher.watch(folder.path)
        #expect(watcher.explain().hasPrefix("The file watcher\(nothing)nothing has changed"))
        _ = try folder.file("text".utf8)
        #expect(watcher.explain().hasPrefix("The file watcher has something to report: "))
        #expect(timer.explain().hasPrefix("The timer on the wall clock\(nothing)it has no fire date"))
        timer.fireDate = ClockTimer.Clock.wallClock.now + .seconds(1000)
        #expect(timer.explain().hasPrefix("The timer on the wall clock\(nothing)its date has not come"))
        let subject = "The source of process \(child.processIdentifier)"
        #expect(process.explain().hasPrefix("\(subject)\(nothing)the process is running"))
        try child.send(SIGKILL)
        _ = child.wait()
        #expect(process.explain().hasPrefix("\(subject) has something to report: "))
        watcher.close()
        timer.close()
        process.cancel()
        for source in [watcher, timer, process] as [EventSource] {
            #expect(source.explain().contains("has been cancelled or closed"))
        }
    }

    @Test(.enabled(if: access("/proc/pressure/memory", R_OK | W_OK) == 0))
    func `a pressure source says that nothing is short`() throws {
        let source = try PressureSource(
            .memory, of: .full, stalledFor: .milliseconds(1900), within: .seconds(2)
        ) { _, _ in }
        try RunLoop.current.add(source, forMode: .default)
        #expect(source.explain().contains("tasks have not stalled for that long"))
        source.close()
    }

    // MARK: Hand-offs

    @Test func `a hand-off says what it waits for`() throws {
        let queue = DispatchQueue(label: "suspended")
        queue.suspend()
        let pipe = try TestPipe()
        let reader = LineReader(InputStream(descriptor: pipe.readEnd), into: 0, on: queue) { _, _, _ in }
        #expect(reader.explain() == "The hand-off has not been started: call start().")
        reader.start { _ in RunLoop.current.stop() }
        #expect(reader.explain().hasPrefix("The hand-off waits for bytes of its stream. The run loop "))
        pipe.put()
        RunLoop.current.run(in: .default, returnAfterSourceHandled: true)
        #expect(reader.explain().hasPrefix("The hand-off waits for its queue"))
        reader.suspend()
        #expect(reader.explain().hasPrefix("The hand-off is suspended"))
        reader.cancel()
        RunLoop.current.run(in: .default)
        #expect(reader.explain().hasPrefix("The hand-off has ended"))
        queue.resume()
    }

    @Test func `a hand-off says that it is calling a closure, also while that runs the loop`() async throws {
        try await onItsOwnThread {
            let (loop, ends) = (RunLoop.current, try FileDescriptor.pipe())
            let input = InputStream(descriptor: ends.readEnd)
            let reader = LineReader(input, into: 0, on: DispatchQueue(label: "lines")) { _, _, _ in }
            let texts = Shared<[String]>([])
            reader.start { progress in
                guard texts.value.isEmpty else { return }
                try? ends.writeEnd.close()
                Timer.scheduled(every: .milliseconds(1)) { timer in
                    guard input.streamStatus == .atEnd else { return }
                    timer.invalidate()
                    loop.stop()
                }
                loop.run(in: .default)
                texts.update { $0.append(reader.explain()) }
            } completion: { _ in
                texts.update { $0.append(reader.explain()) }
                loop.stop()
            }
            try ends.writeEnd.writeAll([10])
            loop.run(in: .default)
            try ends.readEnd.close()
            #expect(
                texts.value
                    == Array(
                        repeating: "The hand-off is calling its progress closure or its completion.", count: 2
                    ))
            #expect(reader.explain() == "The hand-off has ended.")
        }
    }

    // MARK: Streams

    @Test func `a stream says what is missing, in the order in which a client adds it`() async throws {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            let delegate = Reader { stream in
                trace(stream.explain())
                _ = (stream as? InputStream)?.read(upTo: 16)
            }
            let input = InputStream(descriptor: pipe.readEnd)
            let subject = "The input stream of descriptor \(pipe.readEnd.rawValue) "
            func note() {
                let text = input.explain()
                #expect(text.hasPrefix(subject))
                trace(String(text.dropFirst(subject.count)))
            }
            note()
            input.open()
            note()
            input.delegate = delegate
            note()
            input.schedule(in: loop, forMode: .tracking)
            note()
            loop.perform(order: 0) { note() }
            loop.poll()
            loop.poll(.tracking)
            note()
            pipe.put()
            loop.perform(order: 0) { note() }
            loop.poll()
            loop.poll(.tracking)
            input.delegate = nil
            note()
            input.close()
            note()
        }
        #expect(trace[0] == "is not open: call open().")
        #expect(trace[1] == "has no delegate: set one, and keep a reference to it, as the stream's is weak.")
        #expect(trace[2] == "is scheduled on no run loop: call schedule(in:forMode:).")
        #expect(
            trace[3].hasPrefix("has openCompleted to deliver: the ") && trace[3].hasSuffix(" is not running.")
        )
        #expect(trace[4].hasSuffix(" runs in default, and the stream is only in tracking."))
        #expect(
            trace[5].hasPrefix("has no bytes to read, and the ") && trace[5].hasSuffix(" is not running."))
        #expect(trace[6].hasPrefix("has bytes to read: the "))
        #expect(trace[6].hasSuffix(" runs in default, and the stream is only in tracking."))
        #expect(trace[7].contains("is calling its delegate"))
        #expect(trace[8] == "has no delegate: set one, and keep a reference to it, as the stream's is weak.")
        #expect(trace[9] == "is closed.")
    }

    @Test func `a stream says that its delegate has no method for events, until it is read`() async throws {
        let trace = try await traced { loop, trace in
            let (pipe, delegate) = (try TestPipe(), Misnamed())
            let input = InputStream(descriptor: pipe.readEnd)
            input.delegate = delegate
            input.schedule(in: loop, forMode: .default)
            input.open()
            pipe.put()
            for _ in 0..<3 { loop.poll() }
            trace(input.explain())
            _ = input.read(upTo: 16)
            trace(input.explain())
        }
        #expect(trace[0].contains(" to a delegate that does not implement stream(_:handle:): "))
        #expect(trace[1].contains(" has no bytes to read"))
    }

    @Test func `a stream says that it waits for a read, has failed, or belongs to a hand-off`() throws {
        let loop = RunLoop.current
        let pipe = try TestPipe()
        let delegate = Reader { _ in }
        let input = InputStream(descriptor: pipe.readEnd)
        input.delegate = delegate
        input.schedule(in: loop, forMode: .default)
        input.open()
        pipe.put()
        for _ in 0..<3 { loop.poll() }
        #expect(input.explain().contains("has delivered hasBytesAvailable and waits for a read"))
        let missing = InputStream(path: "/nowhere/at/all")
        missing.delegate = delegate
        missing.schedule(in: loop, forMode: .default)
        missing.open()
        #expect(missing.explain().contains("has errorOccurred to deliver"))
        loop.poll()
        #expect(
            missing.explain().hasSuffix("has failed: open /nowhere/at/all: No such file or directory."))
        let source = InputStream(descriptor: pipe.readEnd)
        let reader = LineReader(source, into: 0, on: DispatchQueue(label: "lines")) { _, _, _ in }
        reader.start { _ in }
        #expect(source.explain().contains("is owned by a hand-off"))
        reader.cancel()
    }
}

/// Has only a method of another name.
private final class Misnamed: StreamDelegate {
    func stream(_ stream: Stream, handleEvent event: Stream.Event) {}
}

/// Calls a closure when there are bytes to read.
private final class Reader: StreamDelegate {
    private let handler: (Stream) -> Void

    init(_ handler: @escaping (Stream) -> Void) { self.handler = handler }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        if event == .hasBytesAvailable { handler(stream) }
    }
}
