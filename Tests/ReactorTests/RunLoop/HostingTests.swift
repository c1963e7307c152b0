import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Waits for the hosting's descriptor and dispatches, until the loop is stopped, as a host does that knows nothing else.
private func host(_ hosting: RunLoop.Hosting) {
    repeat { while !isReadable(hosting.descriptor, within: -1) {} } while hosting.dispatch()
}

private func isReadable(_ descriptor: FileDescriptor, within milliseconds: Int32 = 0) -> Bool {
    var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    return poll(&request, 1, milliseconds) > 0
}

@Suite(.runLoop) struct HostingTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    /// What the last step of a program does.
    @Sendable private func stop(_ name: String) {
        trace(name)
        loop.stop()
    }
    private let name = "\(RunLoop.Mode.default)"

    // MARK: Dispatching

    @Test func `a hosted loop calls the same callbacks in the same order as one that runs itself`()
        async throws
    {
        let owned = try await traced { loop, trace in
            let kept = try startTracedProgram(on: loop, trace)
            loop.run(in: .default)
            withExtendedLifetime(kept) {}
        }
        let kept = try startTracedProgram(on: loop, trace)
        let hosting = try RunLoop.Hosting(loop)
        host(hosting)
        hosting.end()
        withExtendedLifetime(kept) {}
        #expect(trace.all == owned)
        #expect(owned.filter { $0.hasPrefix("entry") || $0.hasPrefix("exit") } == ["entry", "exit"])
    }

    @Test func `an idle loop's descriptor is not readable`() throws {
        let pipe = try TestPipe()
        try loop.add(DescriptorSource(pipe, trace, "read"), forMode: .default)
        let hosting = try RunLoop.Hosting(loop)
        #expect(loop.isWaiting)
        #expect(!isReadable(hosting.descriptor, within: 10))
        loop.wakeUp()
        #expect(isReadable(hosting.descriptor))
        #expect(hosting.dispatch())
        #expect(!isReadable(hosting.descriptor, within: 10))
        hosting.end()
    }

    @Test func `what the host's own code adds makes the descriptor readable in time`() throws {
        let hosting = try RunLoop.Hosting(loop)
        let late = Timer.scheduled(after: .seconds(600)) { _ in stop("moved timer") }
        hosting.dispatch()
        let start = Deadline.now
        Timer.scheduled(after: .milliseconds(3)) { _ in
            #expect(start.advanced(by: .milliseconds(3)) <= .now)
            trace("timer")
            loop.stop()
        }
        host(hosting)
        loop.perform { stop("block") }
        host(hosting)
        loop.addSignalled { stop("source") }
        loop.wakeUp()
        host(hosting)
        late.fireDate = .now
        host(hosting)
        // One of a mode that the host does not run, signalled before it is added.
        let source = loop.addSignalled(.custom) { stop("added source") }
        hosting.dispatch()
        loop.add(source, forMode: .default)
        host(hosting)
        #expect(trace.all == ["timer", "block", "source", "moved timer", "added source"])
    }

    @Test func `posts of other threads are all run`() throws {
        let hosting = try RunLoop.Hosting(loop)
        let count = Shared(0)
        let poster = try JoinableThread(name: "poster") {
            onThreads(4) { _ in
                for _ in 0..<500 {
                    loop.perform {
                        count.value += 1
                        if count.value == 2000 { loop.stop() }
                    }
                }
            }
        }
        host(hosting)
        poster.join()
        #expect(count.value == 2000)
    }

    @Test func `a host learns before it waits that it must dispatch, and no handler is called`() throws {
        let hosting = try RunLoop.Hosting(loop)
        #expect(!hosting.needsDispatch)
        loop.hold(.custom)
        loop.run(in: .custom, until: .distantPast)
        loop.perform { trace("block") }
        #expect(hosting.needsDispatch && trace.all.isEmpty)
        hosting.dispatch()
        #expect(!hosting.needsDispatch)
        loop.perform(order: 0) {
            #expect(hosting.needsDispatch)
            hosting.dispatch()
            #expect(!hosting.needsDispatch)
            trace("nested")
        }
        hosting.dispatch()
        hosting.end()
        #expect(!hosting.needsDispatch)
        #expect(trace.all == ["block", "nested"])
    }

    // MARK: Modes

    @Test func `what is in another mode waits for it`() throws {
        loop.observe([.entry, .exit], in: .default) { trace("default \($0)") }
        loop.observe([.entry, .exit], in: .tracking) { trace("tracking \($0)") }
        Timer.scheduled(after: .zero) { _ in stop("default timer") }
        let hosting = try RunLoop.Hosting(loop, mode: .tracking)
        let descriptor = hosting.descriptor
        #expect(loop.currentMode == .tracking)
        #expect(!isReadable(hosting.descriptor, within: 10))
        try hosting.setMode(.default)
        #expect(loop.currentMode == .default && hosting.mode == .default)
        #expect(hosting.descriptor == descriptor)
        host(hosting)
        hosting.end()
        #expect(loop.currentMode == nil)
        #expect(
            trace.all == [
                "tracking entry", "tracking exit", "default entry", "default timer", "default exit",
            ])
    }

    @Test func `a handler that sets the mode changes it after the handlers of its pass`() throws {
        let hosting = try RunLoop.Hosting(loop)
        Timer.scheduled(after: .zero) { _ in
            try? hosting.setMode(.tracking)
            try? hosting.setMode(.custom)
            trace("\(loop.currentMode!)")
            loop.perform(inModes: [.custom]) { stop("\(loop.currentMode!)") }
        }
        Timer.scheduled(after: .zero) { _ in trace("\(loop.currentMode!)") }
        host(hosting)
        #expect(trace.all == [name, name, "custom"])
    }

    @Test func `a handler that sets another mode and then the former one changes nothing`() throws {
        let hosting = try RunLoop.Hosting(loop)
        Timer.scheduled(after: .zero) { _ in
            try? hosting.setMode(.tracking)
            try? hosting.setMode(.default)
            let later = Timer.scheduled(after: .milliseconds(1)) { _ in stop("\(loop.currentMode!)") }
            loop.add(later, forMode: .tracking)
        }
        host(hosting)
        #expect(hosting.mode == .default && trace.all == [name])
    }

    @Test func `a mode that is set in a run of the host's own code begins after that run`() throws {
        let hosting = try RunLoop.Hosting(loop)
        Timer.scheduled(after: .zero) { _ in
            try? hosting.setMode(.tracking)
            trace("\(loop.currentMode!)")
        }
        Timer.scheduled(after: .zero) { _ in trace("\(loop.currentMode!)") }
        loop.run(in: .default)
        #expect(hosting.mode == .default && loop.currentMode == .default)
        hosting.dispatch()
        #expect(hosting.mode == .tracking && loop.currentMode == .tracking)
        #expect(trace.all == [name, name])
    }

    @Test func `a block that is posted before sets the mode that the host waits in`() throws {
        let hosting = try RunLoop.Hosting(loop)
        loop.perform(order: 0) { try? hosting.setMode(.tracking) }
        loop.run(in: .custom, until: .distantPast)
        hosting.prepare()
        Timer.scheduled(after: .milliseconds(1), forMode: .tracking) { _ in loop.stop() }
        host(hosting)
        #expect(hosting.mode == .tracking && loop.currentMode == .tracking)
    }

    // MARK: Nesting

    @Test func `the loop is hosted again after the host's own code has run it`() throws {
        let hosting = try RunLoop.Hosting(loop)
        Timer.scheduled(after: .milliseconds(1), forMode: .tracking) { _ in trace("nested") }
        loop.run(in: .custom, until: .distantPast)
        loop.hold(.custom)
        #expect(loop.run(in: .custom, until: .after(milliseconds: 1)) == .timedOut)
        #expect(loop.run(in: .tracking) == .finished)
        #expect(loop.currentMode == .default)
        Timer.scheduled(after: .milliseconds(1)) { _ in stop("hosted") }
        host(hosting)
        let poster = try JoinableThread {
            loop.perform { stop("posted") }
        }
        host(hosting)
        poster.join()
        #expect(trace.all == ["nested", "hosted", "posted"])
    }

    @Test func `a host's own loop within a handler serves the other items`() throws {
        let hosting = try RunLoop.Hosting(loop)
        Timer.scheduled(after: .zero) { _ in
            trace("begins")
            loop.perform { trace("block") }
            Timer.scheduled(after: .milliseconds(1)) { _ in stop("timer") }
            hosting.prepare()
            host(hosting)
            trace("ends")
            loop.stop()
        }
        host(hosting)
        #expect(trace.all == ["begins", "block", "timer", "ends"])
    }

    @Test func `a host's own loop within a block ends its wait before the next one begins`() throws {
        loop.observe([.beforeWaiting, .afterWaiting]) { trace("\($0)") }
        let hosting = try RunLoop.Hosting(loop)
        loop.perform(order: 0) { hosting.dispatch() }
        hosting.dispatch()
        hosting.end()
        let waits = trace.all
        #expect(waits.count >= 4 && waits.count.isMultiple(of: 2))
        for (index, activity) in waits.enumerated() {
            #expect(activity == (index.isMultiple(of: 2) ? "beforeWaiting" : "afterWaiting"))
        }
    }

    @Test func `the host's own loop in a run of the loop leaves no wait behind`() throws {
        let hosting = try RunLoop.Hosting(loop)
        Timer.scheduled(after: .zero) { _ in
            hosting.prepare()
            hosting.dispatch()
            trace("nested")
        }
        #expect(loop.run(in: .default) == .finished)
        Timer.scheduled(after: .milliseconds(1)) { _ in stop("hosted") }
        host(hosting)
        #expect(trace.all == ["nested", "hosted"])
    }

    @Test func `a loop can be hosted within a run of its own, and within a hosting`() throws {
        let nest = {
            let outer = try RunLoop.Hosting(loop, mode: .outer)
            let inner = try RunLoop.Hosting(loop, mode: .inner)
            for mode in [RunLoop.Mode.outer, .inner] {
                loop.perform(inModes: [mode]) { stop("\(loop.currentMode!)") }
            }
            for hosting in [inner, outer] {
                host(hosting)
                hosting.end()
            }
            trace("\(loop.currentMode!)")
        }
        loop.perform(order: 0) { do { try nest() } catch { Issue.record(error) } }
        loop.poll()
        #expect(trace.all == ["inner", "outer", name])
    }

    // MARK: Ending

    @Test func `a handler may end the hosting, after the handlers of its pass`() throws {
        loop.observe([.entry, .exit]) { trace("\($0)") }
        let hosting = try RunLoop.Hosting(loop)
        Timer.scheduled(after: .zero) { _ in
            trace("ends")
            for _ in 0..<2 { hosting.end() }
            #expect(loop.currentMode == .default)
        }
        Timer.scheduled(after: .zero) { _ in trace("of the same pass") }
        host(hosting)
        #expect(!hosting.dispatch() && !hosting.prepare())
        #expect(loop.currentMode == nil)
        Timer.scheduled(after: .zero) { _ in trace("runs itself") }
        loop.run(in: .default)
        #expect(trace.all == ["entry", "ends", "of the same pass", "exit", "entry", "runs itself", "exit"])
    }

    @Test func `an observer of the wait may end the hosting`() throws {
        let hosting = try RunLoop.Hosting(loop)
        loop.observe(.beforeWaiting) { _ in hosting.end() }
        #expect(!hosting.dispatch())
        #expect(!loop.isWaiting && loop.currentMode == nil)
        loop.hold(.default)
        #expect(loop.run(in: .default, until: .after(milliseconds: 1)) == .timedOut)
    }

    @Test func `a hosting within another may outlast its loop's thread`() throws {
        let kept = Shared<[Carrier<RunLoop.Hosting>]>([])
        try onAThread {
            for _ in 0..<2 { kept.value.append(Carrier(try RunLoop.Hosting(.current))) }
        }
        kept.value = []
    }

    @Test(arguments: [
        Probe(
            "ending or releasing a hosting closes its descriptor", "a hosting's descriptor",
            ["open true", "ended true", "released true"]),
        Probe(
            "a hosted main loop serves the main actor and the main queue", "hosted",
            ["a", "b in \(RunLoop.Mode.default)", "main queue", "stopped"]),
        Probe(
            "a hosting that gets no descriptors throws and leaves the loop usable",
            "hosted without descriptors", ["hosted with true", "runs itself"]),
    ])
    func `a hosting in a program of its own`(probe: Probe) async throws { try await probe.run() }
}
