import CReactorGLib
import Glibc
import Reactor
import ReactorGLib
import ReactorTestSupport
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
    context.after(2) {
        trace("timeout")
        context.idle(idle)
    }
}

@Suite(.runLoop) struct GLibGuestTests {
    private let context = Context()
    private let trace = Trace()
    private let loop = RunLoop.current
    /// Of the default mode, unless a test adds another context.
    private let guest: Carrier<GLibGuest>

    init() throws { guest = Carrier(try loop.addGLibContext(context.pointer)) }

    /// What the last step of a test does.
    @Sendable private func stop(_ name: String) {
        trace(name)
        loop.stop()
    }

    @Test(arguments: [true, false])
    func `a guest calls the same callbacks in the same order as a GLib main loop`(isGuest: Bool) throws {
        let context = isGuest ? context : Context()
        let main = MainLoop(context)
        try startGLibProgram(context, trace) { if isGuest { RunLoop.current.stop() } else { main.quit() } }
        if isGuest { loop.run(in: .default) } else { main.run() }
        #expect(trace.all == ["timeout", "idle", "idle", "idle", "readable", "child ended"])
    }

    @Test func `an idle guest lets the loop sleep`() throws {
        context.timeout(60_000) { true }
        let pipe = try TestPipe()
        context.watch(pipe.readEnd.rawValue) { true }
        // Adding a descriptor has woken the context.
        for _ in 0..<2 { loop.poll() }
        loop.observe(.afterWaiting) { _ in trace("woken") }
        loop.perform { trace("block") }
        #expect(loop.run(in: .default, until: .after(milliseconds: 10)) == .timedOut)
        #expect(trace.all == ["block", "woken"])
    }

    @Test func `the loop's own items and the guest's take turns`() throws {
        var count = 0
        context.idle {
            count += 1
            if count > 3, trace.all.contains("descriptor") { loop.stop() }
            return true
        }
        Timer.scheduled(after: .milliseconds(1)) { _ in trace("timer") }
        let pipe = try TestPipe()
        try loop.add(DescriptorSource(pipe, trace, "descriptor"), forMode: .default)
        context.after(3) { pipe.put() }
        loop.run(in: .default)
        #expect(trace.all == ["timer", "descriptor"])
    }

    @Test func `a loop that never waits serves its guest`() throws {
        @Sendable func again() { loop.perform { again() } }
        again()
        context.after(2) {
            trace("timeout")
            context.whenIdle { stop("idle") }
        }
        loop.run(in: .default)
        #expect(trace.all == ["timeout", "idle"])
    }

    @Test func `what a handler of the loop adds to the context is called`() throws {
        loop.perform {
            context.whenIdle {
                trace("idle")
                loop.perform { context.after(1) { stop("timeout") } }
            }
        }
        loop.run(in: .default)
        #expect(trace.all == ["idle", "timeout"])
    }

    @Test func `other threads invoke on the loop's thread`() throws {
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
        #expect(count.value == 800)
    }

    @Test func `in another mode the guest stands still`() throws {
        context.after(1) { stop("timeout") }
        loop.perform { trace("default") }
        loop.hold(.custom)
        loop.run(in: .custom, until: .after(milliseconds: 10))
        trace("other mode")
        loop.run(in: .default)
        #expect(trace.all == ["other mode", "default", "timeout"])
    }

    @Test func `a guest of the common modes is served in each of them`() throws {
        let context = Context()
        try loop.addGLibContext(context.pointer, inModes: [.common])
        for mode in [RunLoop.Mode.default, .tracking] {
            context.whenIdle { stop("\(loop.currentMode!)") }
            loop.run(in: mode)
        }
        #expect(trace.all == ["\(RunLoop.Mode.default)", "\(RunLoop.Mode.tracking)"])
    }

    @Test func `a run of the loop within a callback serves the other sources of the guest`() throws {
        context.timeout(1) {
            trace("begins")
            context.after(1) { stop("nested timeout") }
            loop.run(in: .default)
            stop("ends")
            return true
        }
        loop.run(in: .default)
        #expect(trace.all == ["begins", "nested timeout", "ends"])
    }

    @Test(arguments: [true, false])
    func `a GLib loop within a callback or a block serves the guest, and later the loop does`(
        isCallback: Bool
    )
        throws
    {
        let dialog = { @Sendable in
            let main = MainLoop(context)
            context.after(1) {
                trace("dialog")
                main.quit()
            }
            main.run()
            context.after(1) { stop("timeout") }
        }
        if isCallback { context.whenIdle(dialog) } else { loop.perform { dialog() } }
        loop.run(in: .default)
        #expect(trace.all == ["dialog", "timeout"])
    }

    @Test func `a guest serves a loop that is hosted`() throws {
        let outer = Context()
        let main = MainLoop(outer)
        let hosting = try loop.attach(toGLib: main.pointer)
        for number in 1...2 {
            context.after(1) { stop("timeout \(number)") }
            loop.wakeUp()
            main.run()
        }
        hosting.end()
        #expect(trace.all == ["timeout 1", "timeout 2"])
    }

    // MARK: Descriptors

    @Test func `a descriptor whose number another file gets is watched`() throws {
        let (first, second) = (try TestPipe(), try TestPipe())
        let number = dup(first.readEnd.rawValue)
        let source = context.watch(number) { true }
        loop.poll()
        loop.perform(order: 0) {
            g_source_destroy(source)
            dup2(second.readEnd.rawValue, number)
            context.watch(number) {
                stop("readable")
                return false
            }
            second.put()
        }
        loop.run(in: .default)
        close(number)
        #expect(trace.all == ["readable"])
    }

    @Test func `a closed descriptor whose file is still open does not keep the loop awake`() throws {
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
        loop.run(in: .default, until: .after(milliseconds: 10))
        close(copy)
        // A loop that is kept awake wakes up hundreds of times.
        #expect(trace.all.count < 10)
    }

    @Test func `forgetting a closed descriptor does not call the others again`() throws {
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
        loop.run(in: .default, until: .after(milliseconds: 10))
        trace("put")
        first.put()
        loop.run(in: .default, until: .after(milliseconds: 10))
        close(copy)
        #expect(trace.all == ["readable", "put", "readable"])
    }

    @Test func `a regular file is always ready`() throws {
        let file = try TemporaryFile("text")
        let descriptor = try FileDescriptor.open(file.path, .readOnly)
        context.watch(descriptor.rawValue) {
            stop("ready")
            return false
        }
        loop.run(in: .default)
        try descriptor.close()
        #expect(trace.all == ["ready"])
    }

    // MARK: The end

    @Test func `a callback may end the guest`() throws {
        context.idle {
            trace("idle")
            guest.value.end()
            guest.value.end()
            #expect(!guest.value.isValid)
            loop.poll()
            return true
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(g_main_context_is_owner(context.pointer) == 0)
        #expect(loop.run(in: .default) == .finished)
        #expect(trace.all == ["idle"])
    }

    @Test func `the end of the loop's thread ends the guest`() throws {
        let context = Context()
        try onAThread {
            try RunLoop.current.addGLibContext(context.pointer)
            RunLoop.current.poll()
        }
        #expect(g_main_context_acquire(context.pointer) != 0)
        g_main_context_release(context.pointer)
    }

    @Test func `a guest retains its context until it ends`() throws {
        var context: Context? = Context()
        let fate = context!.witness()
        let guest = try loop.addGLibContext(context!.pointer)
        context = nil
        loop.poll()
        #expect(guest.isValid && !fate.isFreed)
        guest.end()
        #expect(fate.isFreed)
    }

    @Test func `a context that another thread owns is refused`() throws {
        let context = Context()
        #expect(g_main_context_acquire(context.pointer) != 0)
        try onAThread {
            expectErrno(.resourceBusy) { try RunLoop.current.addGLibContext(context.pointer) }
            #expect(RunLoop.current.run(in: .default) == .finished)
        }
        g_main_context_release(context.pointer)
    }

    @Test func `a guest may be added again after its end`() throws {
        guest.value.end()
        for number in 1...2 {
            let guest = try loop.addGLibContext(context.pointer)
            context.whenIdle { stop("\(number)") }
            loop.run(in: .default)
            guest.end()
        }
        #expect(trace.all == ["1", "2"])
    }
}
