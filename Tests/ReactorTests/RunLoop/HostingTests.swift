import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Waits for the hosting's descriptor and dispatches, until the loop is stopped, as a host does that knows nothing else.
private func host(_ hosting: RunLoop.Hosting) {
    repeat { wait(for: hosting.descriptor) } while hosting.dispatch()
}

/// Waits until the descriptor is readable.
private func wait(for descriptor: FileDescriptor) {
    var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    while poll(&request, 1, -1) < 0 {}
}

private func isReadable(_ descriptor: FileDescriptor, within milliseconds: Int32 = 0) -> Bool {
    var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    return poll(&request, 1, milliseconds) > 0
}

@Suite(.runLoop) struct HostingTests {
    @Test func `a hosted loop calls the same callbacks in the same order as one that runs itself`()
        async throws
    {
        let owned = try await traced { loop, trace in
            let kept = try startTracedProgram(on: loop, trace)
            loop.run(in: .default)
            withExtendedLifetime(kept) {}
        }
        let hosted = try await traced { loop, trace in
            let kept = try startTracedProgram(on: loop, trace)
            let hosting = try RunLoop.Hosting(loop)
            host(hosting)
            hosting.end()
            withExtendedLifetime(kept) {}
        }
        #expect(owned == hosted)
        #expect(owned.filter { $0.hasPrefix("entry") || $0.hasPrefix("exit") } == ["entry", "exit"])
    }

    @Test func `an idle loop's descriptor is not readable`() throws {
        let loop = RunLoop.current
        let pipe = try TestPipe()
        try loop.add(DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }, forMode: .default)
        let hosting = try RunLoop.Hosting(loop)
        #expect(loop.isWaiting)
        #expect(!isReadable(hosting.descriptor, within: 30))
        loop.wakeUp()
        #expect(isReadable(hosting.descriptor))
        #expect(hosting.dispatch())
        #expect(!isReadable(hosting.descriptor, within: 30))
        hosting.end()
    }

    @Test func `what the host's own code adds makes the descriptor readable in time`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            Timer.scheduled(after: .seconds(600)) { _ in trace("late timer") }
            hosting.dispatch()
            let start = Deadline.now
            Timer.scheduled(after: .milliseconds(3)) { _ in
                #expect(start.advanced(by: .milliseconds(3)) <= .now)
                trace("timer")
                loop.stop()
            }
            host(hosting)
            loop.perform {
                trace("block")
                loop.stop()
            }
            host(hosting)
            let source = RunLoop.Source {
                trace("source")
                loop.stop()
            }
            loop.add(source, forMode: .default)
            source.signal()
            loop.wakeUp()
            host(hosting)
            let timer = Timer.scheduled(after: .seconds(600)) { _ in
                trace("moved timer")
                loop.stop()
            }
            hosting.dispatch()
            timer.fireDate = .now
            host(hosting)
        }
        #expect(trace == ["timer", "block", "source", "moved timer"])
    }

    @Test func `a stream that the host's own code writes to is served`() async throws {
        let trace = try await traced { loop, trace in
            let (input, output) = Stream.boundPair(bufferSize: 16)
            let delegate = HandlerDelegate { stream, event in
                guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
                trace("\(input.read(upTo: 16))")
                loop.stop()
            }
            input.delegate = delegate
            let hosting = try RunLoop.Hosting(loop)
            input.schedule(in: loop, forMode: .default)
            input.open()
            output.open()
            hosting.dispatch()
            for number: UInt8 in 1...3 {
                output.write([number])
                host(hosting)
            }
        }
        #expect(trace == ["[1]", "[2]", "[3]"])
    }

    @Test func `posts of other threads are all run`() throws {
        let loop = RunLoop.current
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

    @Test func `a task on the loop's executor runs while the loop is hosted`() async throws {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let hosting = try RunLoop.Hosting(loop)
            let isDone = Shared(false)
            Task(executorPreference: loop.executor()) {
                for _ in 0..<3 { await Task.yield() }
                loop.perform {
                    isDone.value = true
                    loop.stop()
                }
            }
            host(hosting)
            #expect(isDone.value)
        }
    }

    @Test func `what is in another mode waits for it`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe([.entry, .exit], in: .default) { trace("default \($0)") }
            loop.observe([.entry, .exit], in: .tracking) { trace("tracking \($0)") }
            Timer.scheduled(after: .zero) { _ in
                trace("default timer")
                loop.stop()
            }
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
        }
        #expect(
            trace == ["tracking entry", "tracking exit", "default entry", "default timer", "default exit"])
    }

    @Test func `a handler that sets the mode changes it after the handlers of its pass`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            Timer.scheduled(after: .zero) { _ in
                try? hosting.setMode(.tracking)
                try? hosting.setMode(.custom)
                trace("\(loop.currentMode!)")
                loop.perform(inModes: [.custom]) {
                    trace("\(loop.currentMode!)")
                    loop.stop()
                }
            }
            Timer.scheduled(after: .zero) { _ in trace("\(loop.currentMode!)") }
            host(hosting)
        }
        #expect(trace == ["\(RunLoop.Mode.default)", "\(RunLoop.Mode.default)", "custom"])
    }

    @Test func `the loop goes on after the host's own code has run it`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            Timer.scheduled(after: .milliseconds(1), forMode: .tracking) { _ in trace("nested") }
            loop.run(in: .custom, until: .distantPast)
            loop.hold(.custom)
            #expect(loop.run(in: .custom, until: .after(milliseconds: 1)) == .timedOut)
            #expect(loop.run(in: .tracking) == .finished)
            #expect(loop.currentMode == .default)
            Timer.scheduled(after: .milliseconds(1)) { _ in
                trace("hosted")
                loop.stop()
            }
            host(hosting)
            let poster = try JoinableThread {
                loop.perform {
                    trace("posted")
                    loop.stop()
                }
            }
            host(hosting)
            poster.join()
        }
        #expect(trace == ["nested", "hosted", "posted"])
    }

    @Test func `a host's own loop within a handler serves the other items`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            Timer.scheduled(after: .zero) { _ in
                trace("begins")
                loop.perform { trace("block") }
                Timer.scheduled(after: .milliseconds(1)) { _ in
                    trace("timer")
                    loop.stop()
                }
                hosting.prepare()
                host(hosting)
                trace("ends")
                loop.stop()
            }
            host(hosting)
        }
        #expect(trace == ["begins", "block", "timer", "ends"])
    }

    @Test func `a host learns before it waits that it must dispatch, and no handler is called`() async throws
    {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            #expect(!hosting.needsDispatch)
            loop.hold(.custom)
            loop.run(in: .custom, until: .distantPast)
            loop.perform { trace("block") }
            #expect(hosting.needsDispatch)
            trace("asked")
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
        }
        #expect(trace == ["asked", "block", "nested"])
    }

    @Test func `a host's own loop within a block ends its wait before the next one begins`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe([.beforeWaiting, .afterWaiting]) { trace("\($0)") }
            let hosting = try RunLoop.Hosting(loop)
            loop.perform(order: 0) {
                trace("begins")
                hosting.dispatch()
                trace("ends")
            }
            hosting.dispatch()
            hosting.end()
        }
        let waits = trace.filter { !["begins", "ends"].contains($0) }
        #expect(trace.contains("ends"))
        #expect(waits.count.isMultiple(of: 2))
        for (index, activity) in waits.enumerated() {
            #expect(activity == (index.isMultiple(of: 2) ? "beforeWaiting" : "afterWaiting"))
        }
    }

    @Test func `a loop can be hosted within a run of its own, and within a hosting`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform {
                trace("\(loop.currentMode!)")
                do {
                    let outer = try RunLoop.Hosting(loop, mode: .outer)
                    let inner = try RunLoop.Hosting(loop, mode: .inner)
                    loop.perform(inModes: [.outer]) {
                        trace("\(loop.currentMode!)")
                        loop.stop()
                    }
                    loop.perform(inModes: [.inner]) {
                        trace("\(loop.currentMode!)")
                        loop.stop()
                    }
                    host(inner)
                    inner.end()
                    host(outer)
                    outer.end()
                } catch {
                    Issue.record(error)
                }
                trace("\(loop.currentMode!)")
            }
            loop.hold(.default)
            loop.poll()
        }
        let name = "\(RunLoop.Mode.default)"
        #expect(trace == [name, "inner", "outer", name])
    }

    @Test func `a handler may end the hosting`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe([.entry, .exit]) { trace("\($0)") }
            let hosting = try RunLoop.Hosting(loop)
            Timer.scheduled(after: .zero) { _ in
                trace("ends")
                hosting.end()
                hosting.end()
            }
            host(hosting)
            #expect(!hosting.dispatch())
            #expect(!hosting.prepare())
            #expect(loop.currentMode == nil)
            Timer.scheduled(after: .zero) { _ in trace("runs itself") }
            loop.run(in: .default)
        }
        #expect(trace == ["entry", "ends", "exit", "entry", "runs itself", "exit"])
    }

    @Test func `a hosting ends after the handlers of the pass`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            Timer.scheduled(after: .zero) { _ in
                hosting.end()
                trace("first in \(loop.currentMode == .default)")
            }
            Timer.scheduled(after: .zero) { _ in trace("second in \(loop.currentMode == .default)") }
            loop.observe(.exit) { trace("\($0)") }
            while hosting.dispatch() {}
            #expect(hosting.mode == .default)
        }
        #expect(trace == ["first in true", "second in true", "exit"])
    }

    @Test func `an observer of the wait may end the hosting`() throws {
        let loop = RunLoop.current
        let hosting = try RunLoop.Hosting(loop)
        loop.observe(.beforeWaiting) { _ in hosting.end() }
        #expect(!hosting.dispatch())
        #expect(!loop.isWaiting && loop.currentMode == nil)
        loop.hold(.default)
        #expect(loop.run(in: .default, until: .after(milliseconds: 1)) == .timedOut)
    }

    @Test func `a block that is posted before sets the mode that the host waits in`() throws {
        let loop = RunLoop.current
        let hosting = try RunLoop.Hosting(loop)
        loop.perform(order: 0) { try? hosting.setMode(.tracking) }
        loop.run(in: .custom, until: .distantPast)
        hosting.prepare()
        Timer.scheduled(after: .milliseconds(1), forMode: .tracking) { _ in loop.stop() }
        host(hosting)
        #expect(hosting.mode == .tracking && loop.currentMode == .tracking)
    }

    @Test func `the host's own loop in a run of the loop leaves no wait behind`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            Timer.scheduled(after: .zero) { _ in
                hosting.prepare()
                hosting.dispatch()
                trace("nested")
            }
            #expect(loop.run(in: .default) == .finished)
            Timer.scheduled(after: .milliseconds(1)) { _ in
                trace("hosted")
                loop.stop()
            }
            host(hosting)
        }
        #expect(trace == ["nested", "hosted"])
    }

    @Test func `a mode that is set in a run of the host's own code begins after that run`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            Timer.scheduled(after: .zero) { _ in
                try? hosting.setMode(.tracking)
                trace("\(loop.currentMode == .default)")
            }
            Timer.scheduled(after: .zero) { _ in trace("\(loop.currentMode == .default)") }
            loop.run(in: .default)
            #expect(hosting.mode == .default && loop.currentMode == .default)
            hosting.dispatch()
            #expect(hosting.mode == .tracking && loop.currentMode == .tracking)
        }
        #expect(trace == ["true", "true"])
    }

    @Test func `a signalled source that the host's own code adds is performed`() async throws {
        let trace = try await traced { loop, trace in
            let hosting = try RunLoop.Hosting(loop)
            let source = RunLoop.Source {
                trace("performed")
                loop.stop()
            }
            loop.add(source, forMode: .custom)
            source.signal()
            loop.wakeUp()
            hosting.dispatch()
            loop.add(source, forMode: .default)
            host(hosting)
        }
        #expect(trace == ["performed"])
    }

    @Test func `releasing a hosting ends it`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe([.entry, .exit]) { trace("\($0)") }
            var hosting: RunLoop.Hosting? = try RunLoop.Hosting(loop)
            #expect(hosting?.mode == loop.currentMode)
            hosting = nil
            #expect(loop.currentMode == nil)
        }
        #expect(trace == ["entry", "exit"])
    }

    @Test func `ending or releasing a hosting closes its descriptor`() async throws {
        #expect(
            try await probeMainLoop("a hosting's descriptor") == ["open true", "ended true", "released true"])
    }

    @Test func `a hosting within another may outlast its loop's thread`() throws {
        let kept = Shared<[Carrier<RunLoop.Hosting>]>([])
        try onAThread {
            for _ in 0..<2 { kept.value.append(Carrier(try RunLoop.Hosting(.current))) }
        }
        kept.value = []
    }

    @Test func `a hosted main loop serves the main actor and the main queue`() async throws {
        let lines = try await probeMainLoop("hosted")
        #expect(lines == ["a", "b in \(RunLoop.Mode.default)", "main queue", "stopped"])
    }

    @Test func `a hosting that gets no descriptors throws and leaves the loop usable`() async throws {
        #expect(try await probeMainLoop("hosted without descriptors") == ["hosted with true", "runs itself"])
    }

    @Test func `ending a hosting within a nested run traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let loop = RunLoop.current
                let hosting = Carrier(try RunLoop.Hosting(loop))
                loop.perform(inModes: [.tracking]) { hosting.value.end() }
                loop.run(in: .tracking)
            }
        }
        #expect(result.message.contains("not within a nested one"))
    }

    @Test func `dispatching off the loop's thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let hosting = Carrier(try RunLoop.Hosting(.current))
                try JoinableThread { hosting.value.dispatch() }.join()
            }
        }
        #expect(result.message.contains("RunLoop.Hosting.dispatch() must be called on the loop's own thread"))
    }
}
