import CReactorGLib
import Glibc
import Reactor
import ReactorGLib
import ReactorTesting
import SystemPackage
import Testing

/// A GLib program whose every step leads to the next, so that it has one order of callbacks only.
///
/// - Parameter quit: Called in the last step.
private func startGLibProgram(_ context: Context, _ trace: Trace, quit: @escaping () -> Void) throws {
    let pipe = try TestPipe()
    var rounds = 0
    let ended = {
        trace("child ended")
        quit()
    }
    let readable = {
        pipe.get()
        trace("readable")
        guard let child = try? Child("/bin/true", []) else { return false }
        context.child(child.identifier, ended)
        return false
    }
    let idle = {
        trace("idle")
        rounds += 1
        if rounds == 3 { pipe.put() }
        return rounds < 3
    }
    context.watch(pipe.readEnd.rawValue, readable)
    context.timeout(2) {
        trace("timeout")
        context.idle(idle)
        return false
    }
}

/// Calls `body` on a thread of its own with its loop and a GLib context that is the loop's guest.
private func withGuest(
    inModes modes: [RunLoop.Mode] = [.default],
    _ body: @escaping @Sendable (RunLoop, Context, Trace) throws -> Void
) async throws -> [String] {
    try await traced { loop, trace in
        let context = Context()
        try loop.addGLibContext(context.pointer, inModes: modes)
        try body(loop, context, trace)
    }
}

@Suite(.runLoop) struct GLibGuestTests {
    @Test func `a guest calls the same callbacks in the same order as a GLib main loop`() async throws {
        let native = try await traced { _, trace in
            let context = Context()
            let main = MainLoop(context)
            try startGLibProgram(context, trace) { main.quit() }
            main.run()
        }
        let guest = try await withGuest { loop, context, trace in
            try startGLibProgram(context, trace) { loop.stop() }
            loop.run(in: .default)
        }
        #expect(native == guest)
        #expect(native == ["timeout", "idle", "idle", "idle", "readable", "child ended"])
    }

    @Test func `an idle guest lets the loop sleep`() async throws {
        let trace = try await withGuest { loop, context, trace in
            context.timeout(60_000) { true }
            let pipe = try TestPipe()
            context.watch(pipe.readEnd.rawValue) { true }
            // Adding a descriptor has woken the context.
            for _ in 0..<2 { loop.poll() }
            loop.observe(.afterWaiting) { _ in trace("woken") }
            loop.perform { trace("block") }
            #expect(loop.run(in: .default, until: .after(milliseconds: 50)) == .timedOut)
        }
        #expect(trace == ["block", "woken"])
    }

    @Test func `the loop's own items and the guest's take turns`() async throws {
        let trace = try await withGuest { loop, context, trace in
            var count = 0
            context.idle {
                count += 1
                if count > 3, trace.all.contains("descriptor") { loop.stop() }
                return true
            }
            Timer.scheduled(after: .milliseconds(1)) { _ in trace("timer") }
            let pipe = try TestPipe()
            try loop.add(DescriptorSource(pipe, trace, "descriptor"), forMode: .default)
            context.timeout(3) {
                pipe.put()
                return false
            }
            loop.run(in: .default)
        }
        #expect(trace == ["timer", "descriptor"])
    }

    @Test func `a loop that never waits serves its guest`() async throws {
        let trace = try await withGuest { loop, context, trace in
            let source = Shared<Carrier<RunLoop.Source>?>(nil)
            source.value = Carrier(RunLoop.Source { source.value?.value.signal() })
            loop.add(source.value!.value, forMode: .default)
            source.value!.value.signal()
            context.timeout(2) {
                trace("timeout")
                context.idle {
                    trace("idle")
                    loop.stop()
                    return false
                }
                return false
            }
            loop.run(in: .default)
            source.value = nil
        }
        #expect(trace == ["timeout", "idle"])
    }

    @Test func `what a handler of the loop adds to the context is called`() async throws {
        let trace = try await withGuest { loop, context, trace in
            Timer.scheduled(after: .milliseconds(1)) { _ in
                context.idle {
                    trace("idle")
                    loop.perform {
                        context.timeout(1) {
                            trace("timeout")
                            loop.stop()
                            return false
                        }
                    }
                    return false
                }
            }
            loop.run(in: .default)
        }
        #expect(trace == ["idle", "timeout"])
    }

    @Test func `other threads invoke on the loop's thread`() async throws {
        let trace = try await withGuest { loop, context, trace in
            let count = Shared(0)
            let poster = try JoinableThread {
                onThreads(4) { _ in
                    for _ in 0..<200 {
                        context.invoke {
                            #expect(loop.isCurrent)
                            count.value += 1
                            if count.value == 800 { loop.stop() }
                        }
                    }
                }
            }
            loop.run(in: .default)
            poster.join()
            trace("\(count.value)")
        }
        #expect(trace == ["800"])
    }

    @Test func `in another mode the guest stands still`() async throws {
        let trace = try await withGuest { loop, context, trace in
            context.timeout(1) {
                trace("timeout")
                loop.stop()
                return false
            }
            loop.perform { trace("default") }
            loop.hold(.custom)
            loop.run(in: .custom, until: .after(milliseconds: 20))
            trace("other mode")
            loop.run(in: .default)
        }
        #expect(trace == ["other mode", "default", "timeout"])
    }

    @Test func `a guest of the common modes is served in each of them`() async throws {
        let trace = try await withGuest(inModes: [.common]) { loop, context, trace in
            for mode in [RunLoop.Mode.default, .tracking] {
                context.idle {
                    trace("\(loop.currentMode!)")
                    loop.stop()
                    return false
                }
                loop.run(in: mode)
            }
        }
        #expect(trace == ["\(RunLoop.Mode.default)", "\(RunLoop.Mode.tracking)"])
    }

    @Test func `a run of the loop within a callback serves the other sources of the guest`() async throws {
        let trace = try await withGuest { loop, context, trace in
            context.timeout(1) {
                trace("begins")
                context.timeout(1) {
                    trace("nested timeout")
                    loop.stop()
                    return false
                }
                loop.run(in: .default)
                trace("ends")
                loop.stop()
                return true
            }
            loop.run(in: .default)
        }
        #expect(trace == ["begins", "nested timeout", "ends"])
    }

    @Test func `a GLib loop within a callback serves the guest, and the loop goes on after it`()
        async throws
    {
        let trace = try await withGuest { loop, context, trace in
            for start in ["callback", "block"] {
                let dialog = {
                    trace(start)
                    let main = MainLoop(context)
                    context.timeout(1) {
                        trace("dialog")
                        main.quit()
                        return false
                    }
                    main.run()
                    context.timeout(1) {
                        trace("timeout")
                        loop.stop()
                        return false
                    }
                }
                if start == "callback" {
                    context.idle {
                        dialog()
                        return false
                    }
                } else {
                    loop.perform(order: 0) { dialog() }
                }
                loop.run(in: .default)
            }
        }
        #expect(trace == ["callback", "dialog", "timeout", "block", "dialog", "timeout"])
    }

    @Test func `a guest serves a loop that is hosted`() async throws {
        let trace = try await withGuest { loop, context, trace in
            let outer = Context()
            let main = MainLoop(outer)
            let hosting = try loop.attach(toGLib: main.pointer)
            for number in 1...2 {
                context.timeout(1) {
                    trace("timeout \(number)")
                    loop.stop()
                    return false
                }
                loop.wakeUp()
                main.run()
            }
            hosting.end()
        }
        #expect(trace == ["timeout 1", "timeout 2"])
    }

    // MARK: Descriptors

    @Test func `a descriptor whose number another file gets is watched`() async throws {
        let trace = try await withGuest { loop, context, trace in
            let (first, second) = (try TestPipe(), try TestPipe())
            let number = dup(first.readEnd.rawValue)
            let source = context.watch(number) { true }
            loop.poll()
            loop.perform(order: 0) {
                g_source_destroy(source)
                dup2(second.readEnd.rawValue, number)
                context.watch(number) {
                    trace("readable")
                    loop.stop()
                    return false
                }
                second.put()
            }
            loop.run(in: .default)
            close(number)
        }
        #expect(trace == ["readable"])
    }

    @Test func `a closed descriptor whose file is still open does not keep the loop awake`() async throws {
        let trace = try await withGuest { loop, context, trace in
            let pipe = try TestPipe()
            let copy = dup(pipe.readEnd.rawValue)
            let number = dup(pipe.readEnd.rawValue)
            let source = context.watch(number) { true }
            loop.poll()
            loop.perform(order: 0) {
                g_source_destroy(source)
                close(number)
                pipe.put()
            }
            loop.run(in: .default, until: .after(milliseconds: 10))
            loop.observe(.afterWaiting) { _ in trace("woken") }
            loop.run(in: .default, until: .after(milliseconds: 20))
            close(copy)
        }
        // A loop that is kept awake wakes up hundreds of times.
        #expect(trace.count < 10)
    }

    @Test func `forgetting a closed descriptor does not call the others again`() async throws {
        let trace = try await withGuest { loop, context, trace in
            let (first, second) = (try TestPipe(), try TestPipe())
            let copy = dup(second.readEnd.rawValue)
            let number = dup(second.readEnd.rawValue)
            let closed = context.watch(number) { true }
            context.watch(first.readEnd.rawValue) {
                trace("readable")
                guard trace.all.count == 1 else { return false }
                first.get()
                g_source_destroy(closed)
                close(number)
                second.put()
                return true
            }
            loop.poll()
            first.put()
            loop.run(in: .default, until: .after(milliseconds: 20))
            trace("put")
            first.put()
            loop.run(in: .default, until: .after(milliseconds: 20))
            close(copy)
        }
        #expect(trace == ["readable", "put", "readable"])
    }

    @Test func `a regular file is always ready`() async throws {
        let file = try TemporaryFile("text")
        let trace = try await withGuest { loop, context, trace in
            let descriptor = try FileDescriptor.open(file.path, .readOnly)
            context.watch(descriptor.rawValue) {
                trace("ready")
                loop.stop()
                return false
            }
            loop.run(in: .default)
            try descriptor.close()
        }
        #expect(trace == ["ready"])
    }

    // MARK: The end

    @Test func `a callback may end the guest`() async throws {
        let trace = try await traced { loop, trace in
            let context = Context()
            let guest = try loop.addGLibContext(context.pointer)
            context.idle {
                trace("idle")
                guest.end()
                guest.end()
                #expect(!guest.isValid)
                loop.poll()
                return true
            }
            #expect(loop.run(in: .default) == .finished)
            #expect(g_main_context_is_owner(context.pointer) == 0)
            #expect(loop.run(in: .default) == .finished)
        }
        #expect(trace == ["idle"])
    }

    @Test func `the end of the loop's thread ends the guest`() async throws {
        let context = Context()
        try onAThread {
            try RunLoop.current.addGLibContext(context.pointer)
            RunLoop.current.poll()
        }
        #expect(g_main_context_acquire(context.pointer) != 0)
        g_main_context_release(context.pointer)
    }

    @Test func `a guest retains its context until it ends`() throws {
        let loop = RunLoop.current
        var witness: Witness? = Witness()
        let fate = Fate(witness!)
        var context: Context? = Context()
        context?.timeout(60_000) { [witness] in
            withExtendedLifetime(witness) { true }
        }
        witness = nil
        let guest = try loop.addGLibContext(context!.pointer)
        context = nil
        loop.poll()
        #expect(guest.isValid && !fate.isFreed)
        guest.end()
        #expect(fate.isFreed)
    }

    @Test func `a context that another thread owns is refused`() async throws {
        let context = Context()
        #expect(g_main_context_acquire(context.pointer) != 0)
        try onAThread {
            #expect(throws: Errno.resourceBusy) {
                try RunLoop.current.addGLibContext(context.pointer)
            }
            #expect(RunLoop.current.run(in: .default) == .finished)
        }
        g_main_context_release(context.pointer)
    }

    @Test func `a guest may be added again after its end`() async throws {
        let trace = try await traced { loop, trace in
            let context = Context()
            for number in 1...3 {
                let guest = try loop.addGLibContext(context.pointer)
                context.idle {
                    trace("\(number)")
                    loop.stop()
                    return false
                }
                loop.run(in: .default)
                guest.end()
            }
        }
        #expect(trace == ["1", "2", "3"])
    }
}
