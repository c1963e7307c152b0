import CReactorGLib
import Glibc
import Reactor
import ReactorGLib
import ReactorTesting
import SystemPackage
import Testing

/// Destroys the source of the hosting.
private func destroySource(_ context: Context) {
    g_source_destroy(g_main_context_find_source_by_id(context.pointer, 1))
}

@Suite(.runLoop) struct GLibHostingTests {
    private let context = Context()
    private let trace = Trace()
    private let loop = RunLoop.current
    private let main: MainLoop

    init() { main = MainLoop(context) }

    /// What the last step of a test does.
    @Sendable private func stop(_ name: String) {
        trace(name)
        loop.stop()
    }

    @Test func `a loop in GLib calls the same callbacks in the same order as one that runs itself`() throws {
        let own = try onAThread {
            let trace = Trace()
            let kept = try startTracedProgram(on: .current, trace)
            RunLoop.current.run(in: .default)
            return withExtendedLifetime(kept) { trace.all }
        }
        let kept = try startTracedProgram(on: loop, trace)
        let hosting = try loop.attach(toGLib: main.pointer)
        main.run()
        hosting.end()
        #expect(withExtendedLifetime(kept) { trace.all } == own)
    }

    @Test func `stopping the loop quits the main loop, which may run again`() throws {
        try loop.attach(toGLib: main.pointer)
        for number in 1...3 {
            Timer.scheduled(after: .milliseconds(1)) { _ in stop("timer \(number)") }
            main.run()
        }
        #expect(trace.all == ["timer 1", "timer 2", "timer 3"])
    }

    @Test func `a stop handler replaces the quitting`() throws {
        try loop.attach(toGLibContext: context.pointer) { trace("stopped") }
        loop.perform { loop.stop() }
        while trace.all.isEmpty { g_main_context_iteration(context.pointer, 1) }
        #expect(trace.all == ["stopped"])
    }

    @Test func `GLib's own sources are called between the loop's`() throws {
        try loop.attach(toGLib: main.pointer)
        context.after(1) {
            trace("timeout")
            Timer.scheduled(after: .milliseconds(1)) { _ in
                trace("timer")
                context.whenIdle {
                    trace("idle")
                    loop.perform { stop("block") }
                }
            }
        }
        main.run()
        #expect(trace.all == ["timeout", "timer", "idle", "block"])
    }

    @Test func `posts of other threads are all run`() throws {
        try loop.attach(toGLib: main.pointer)
        let count = Shared(0)
        let poster = try JoinableThread {
            onThreads(4) { _ in
                for _ in 0..<500 {
                    loop.perform {
                        count.value += 1
                        if count.value == 2000 { loop.stop() }
                    }
                }
            }
        }
        main.run()
        poster.join()
        #expect(count.value == 2000)
    }

    @Test func `a GLib loop within a handler serves the loop's other items`() throws {
        try loop.attach(toGLib: main.pointer)
        loop.perform {
            trace("dialog opens")
            let dialog = MainLoop(context)
            loop.perform {
                trace("block")
                let inner = MainLoop(context)
                Timer.scheduled(after: .milliseconds(1)) { _ in
                    trace("timer")
                    inner.quit()
                }
                inner.run()
                dialog.quit()
            }
            dialog.run()
            stop("dialog closes")
        }
        main.run()
        #expect(trace.all == ["dialog opens", "block", "timer", "dialog closes"])
    }

    @Test func `a run of the loop within a GLib callback leaves it hosted`() throws {
        try loop.attach(toGLib: main.pointer)
        context.after(1) {
            Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in trace("nested") }
            loop.run(in: .custom)
            Timer.scheduled(after: .milliseconds(1)) { _ in stop("hosted") }
        }
        main.run()
        #expect(trace.all == ["nested", "hosted"])
    }

    @Test func `what is in another mode waits for it`() throws {
        let hosting = try loop.attach(toGLib: main.pointer, mode: .custom)
        Timer.scheduled(after: .zero) { _ in stop("default") }
        context.after(5) {
            trace("\(hosting.mode)")
            try? hosting.setMode(.default)
        }
        main.run()
        #expect(trace.all == ["custom", "default"])
    }

    @Test func `the source of a lower priority waits for the others`() throws {
        try loop.attach(toGLib: main.pointer, priority: G_PRIORITY_LOW)
        loop.perform { stop("block") }
        var remaining = 3
        context.idle {
            trace("idle")
            remaining -= 1
            return remaining > 0
        }
        main.run()
        #expect(trace.all == ["idle", "idle", "idle", "block"])
    }

    @Test func `a handler may end the hosting`() throws {
        loop.observe([.entry, .exit]) { trace("\($0)") }
        let hosting = try loop.attach(toGLib: main.pointer)
        Timer.scheduled(after: .zero) { _ in
            hosting.end()
            hosting.end()
            #expect(!hosting.isValid)
            context.after(1) { main.quit() }
        }
        main.run()
        #expect(loop.currentMode == nil)
        Timer.scheduled(after: .zero) { _ in trace("runs itself") }
        loop.run(in: .default)
        #expect(trace.all == ["entry", "exit", "entry", "runs itself", "exit"])
    }

    @Test func `a hosting retains its context and its handler until it ends`() throws {
        var (context, witness) = (Context() as Context?, Witness() as Witness?)
        let fates = [context!.witness(), Fate(witness!)]
        var hosting: GLibHosting? = try loop.attach(toGLibContext: context!.pointer) { [witness] in
            withExtendedLifetime(witness) {}
        }
        (context, witness) = (nil, nil)
        #expect(hosting?.isValid == true && !fates.contains { $0.isFreed } && loop.currentMode == .default)
        hosting?.end()
        hosting = nil
        #expect(fates.allSatisfy { $0.isFreed } && loop.currentMode == nil)
    }

    @Test func `what a hosting releases at its end may release the context`() throws {
        for round in 0..<Depth.of(full: 200, quick: 20) {
            try onAThread {
                let context = Shared<Context?>(Context())
                let last = AtEnd { context.value = nil }
                let hosting = try RunLoop.current.attach(toGLibContext: context.value!.pointer) {
                    withExtendedLifetime(last) {}
                }
                if round.isMultiple(of: 2) { hosting.end() }
            }
        }
    }

    @Test func `another thread may destroy the source`() throws {
        let context = context
        var witness: Witness? = Witness()
        let fate = Fate(witness!)
        try loop.attach(toGLibContext: context.pointer) { [witness] in withExtendedLifetime(witness) {} }
        witness = nil
        try onAThread { destroySource(context) }
        Timer.scheduled(after: .zero) { _ in }
        loop.run(in: .default)
        #expect(loop.currentMode == nil && fate.isFreed)
    }

    @Test(arguments: [false, true], [false, true])
    func `a source that is destroyed while a handler runs the loop ends the hosting after that run`(
        onAnotherThread: Bool, isHandler: Bool
    ) throws {
        let (context, destroy) = (context, { @Sendable [context] in destroySource(context) })
        try loop.attach(toGLib: main.pointer)
        let runNested = { @Sendable [loop, trace, main] in
            Timer.scheduled(after: .zero, forMode: .custom) { _ in
                if onAnotherThread { try! onAThread(destroy) } else { destroy() }
            }
            Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in trace("nested") }
            loop.run(in: .custom)
            trace("returned")
            main.quit()
        }
        loop.observe(.exit) { _ in trace("exit") }
        if isHandler { loop.perform(order: 0) { runNested() } } else { context.whenIdle(runNested) }
        main.run()
        #expect(trace.all == (isHandler ? ["nested", "returned", "exit"] : ["nested", "exit", "returned"]))
        #expect(loop.currentMode == nil)
    }

    @Test func `the loop's thread may end before its context`() throws {
        let context = context
        let fate = try onAThread {
            let witness = Witness()
            for _ in 0..<2 {
                try RunLoop.current.attach(toGLibContext: context.pointer) {
                    withExtendedLifetime(witness) {}
                }
            }
            return Fate(witness)
        }
        #expect(fate.isFreed && g_main_context_iteration(context.pointer, 0) == 0)
    }

    @Test func `iterating the context on another thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let context = Context()
                try RunLoop.current.attach(toGLibContext: context.pointer) {}
                try JoinableThread { g_main_context_iteration(context.pointer, 0) }.join()
            }
        }
        #expect(result.message.contains("must be called on the loop's own thread"))
    }

    @Test(arguments: [
        ("hosted", ["main actor", "after a sleep", "main queue", "stream", "timer", "stopped"]),
        ("guest", ["timeout", "main actor", "main queue", "idle", "stopped"]),
    ])
    func `the main actor and the main queue are served in either loop`(scenario: String, lines: [String])
        throws
    {
        let probe = try Child("glib-probe", [scenario])
        #expect(probe.readOutput().split(separator: "\n").map(String.init) == lines)
        #expect(probe.wait() == .exit(0), "\(probe.readErrors())")
    }
}
