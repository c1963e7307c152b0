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

/// Calls `body` on a thread of its own with its loop and a GLib context.
private func hosted(
    _ body: @escaping @Sendable (RunLoop, Context, Trace) throws -> Void
) async throws -> [String] {
    try await traced { loop, trace in try body(loop, Context(), trace) }
}

@Suite(.runLoop) struct GLibHostingTests {
    @Test func `a loop in GLib calls the same callbacks in the same order as one that runs itself`()
        async throws
    {
        let owned = try await traced { loop, trace in
            let kept = try startTracedProgram(on: loop, trace)
            loop.run(in: .default)
            withExtendedLifetime(kept) {}
        }
        let inGLib = try await hosted { loop, context, trace in
            let kept = try startTracedProgram(on: loop, trace)
            let main = MainLoop(context)
            let hosting = try loop.attach(toGLib: main.pointer)
            main.run()
            hosting.end()
            withExtendedLifetime(kept) {}
        }
        #expect(owned == inGLib)
    }

    @Test func `stopping the loop quits the main loop, which may run again`() async throws {
        let trace = try await hosted { loop, context, trace in
            let main = MainLoop(context)
            let hosting = try loop.attach(toGLib: main.pointer)
            for number in 1...3 {
                Timer.scheduled(after: .milliseconds(1)) { _ in
                    trace("timer \(number)")
                    loop.stop()
                }
                main.run()
            }
            hosting.end()
        }
        #expect(trace == ["timer 1", "timer 2", "timer 3"])
    }

    @Test func `a stop handler replaces the quitting`() async throws {
        let trace = try await hosted { loop, context, trace in
            try loop.attach(toGLibContext: context.pointer) { trace("stopped") }
            loop.perform { loop.stop() }
            while trace.all.isEmpty { g_main_context_iteration(context.pointer, 1) }
        }
        #expect(trace == ["stopped"])
    }

    @Test func `GLib's own sources are called between the loop's`() async throws {
        let trace = try await hosted { loop, context, trace in
            let main = MainLoop(context)
            try loop.attach(toGLib: main.pointer)
            context.timeout(1) {
                trace("timeout")
                Timer.scheduled(after: .milliseconds(1)) { _ in
                    trace("timer")
                    context.idle {
                        trace("idle")
                        loop.perform {
                            trace("block")
                            loop.stop()
                        }
                        return false
                    }
                }
                return false
            }
            main.run()
        }
        #expect(trace == ["timeout", "timer", "idle", "block"])
    }

    @Test func `posts of other threads are all run`() async throws {
        let trace = try await hosted { loop, context, trace in
            let main = MainLoop(context)
            try loop.attach(toGLib: main.pointer)
            let count = Shared(0)
            let poster = try JoinableThread {
                onThreads(4) { _ in
                    for _ in 0..<500 {
                        loop.perform {
                            if count.update({
                                $0 += 1
                                return $0
                            }) == 2000 {
                                loop.stop()
                            }
                        }
                    }
                }
            }
            main.run()
            poster.join()
            trace("\(count.value)")
        }
        #expect(trace == ["2000"])
    }

    @Test func `a GLib loop within a handler serves the loop's other items`() async throws {
        let trace = try await hosted { loop, context, trace in
            let main = MainLoop(context)
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
                trace("dialog closes")
                loop.stop()
            }
            main.run()
        }
        #expect(trace == ["dialog opens", "block", "timer", "dialog closes"])
    }

    @Test func `a run of the loop within a GLib callback leaves it hosted`() async throws {
        let trace = try await hosted { loop, context, trace in
            let main = MainLoop(context)
            try loop.attach(toGLib: main.pointer)
            context.timeout(1) {
                Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in trace("nested") }
                loop.run(in: .custom)
                Timer.scheduled(after: .milliseconds(1)) { _ in
                    trace("hosted")
                    loop.stop()
                }
                return false
            }
            main.run()
        }
        #expect(trace == ["nested", "hosted"])
    }

    @Test func `what is in another mode waits for it`() async throws {
        let trace = try await hosted { loop, context, trace in
            let main = MainLoop(context)
            let hosting = try loop.attach(toGLib: main.pointer, mode: .custom)
            Timer.scheduled(after: .zero) { _ in
                trace("default")
                loop.stop()
            }
            context.timeout(5) {
                trace("\(hosting.mode)")
                try? hosting.setMode(.default)
                return false
            }
            main.run()
        }
        #expect(trace == ["custom", "default"])
    }

    @Test func `the source of a lower priority waits for the others`() async throws {
        let trace = try await hosted { loop, context, trace in
            let main = MainLoop(context)
            try loop.attach(toGLib: main.pointer, priority: G_PRIORITY_LOW)
            loop.perform {
                trace("block")
                loop.stop()
            }
            var remaining = 3
            context.idle {
                trace("idle")
                remaining -= 1
                return remaining > 0
            }
            main.run()
        }
        #expect(trace == ["idle", "idle", "idle", "block"])
    }

    @Test func `a handler may end the hosting`() async throws {
        let trace = try await hosted { loop, context, trace in
            loop.observe([.entry, .exit]) { trace("\($0)") }
            let main = MainLoop(context)
            let hosting = try loop.attach(toGLib: main.pointer)
            Timer.scheduled(after: .zero) { _ in
                hosting.end()
                hosting.end()
                #expect(!hosting.isValid)
                context.timeout(1) {
                    main.quit()
                    return false
                }
            }
            main.run()
            #expect(loop.currentMode == nil)
            Timer.scheduled(after: .zero) { _ in trace("runs itself") }
            loop.run(in: .default)
        }
        #expect(trace == ["entry", "exit", "entry", "runs itself", "exit"])
    }

    @Test func `ending the hosting releases the main loop and the handler`() async throws {
        let fates = try await onItsOwnThread {
            let (context, witness) = (Context(), Witness())
            let hosting = try RunLoop.current.attach(toGLibContext: context.pointer) {
                withExtendedLifetime(witness) {}
            }
            hosting.end()
            return Fate(witness)
        }
        #expect(fates.isFreed)
    }

    @Test func `a hosting retains its context until it ends`() throws {
        let loop = RunLoop.current
        var witness: Witness? = Witness()
        let fate = Fate(witness!)
        var context: Context? = Context()
        context?.timeout(60_000) { [witness] in
            withExtendedLifetime(witness) { true }
        }
        witness = nil
        var hosting: GLibHosting? = try loop.attach(toGLibContext: context!.pointer) {}
        context = nil
        #expect(hosting?.isValid == true && !fate.isFreed && loop.currentMode == .default)
        hosting?.end()
        hosting = nil
        #expect(fate.isFreed && loop.currentMode == nil)
    }

    @Test func `what a hosting releases at its end may release the context`() async {
        await #expect(processExitsWith: .success) {
            for round in 0..<200 {
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
    }

    @Test func `another thread may destroy the source`() async throws {
        let fate = try await onItsOwnThread {
            let (loop, context, witness) = (RunLoop.current, Context(), Witness())
            try loop.attach(toGLibContext: context.pointer) { withExtendedLifetime(witness) {} }
            try JoinableThread { destroySource(context) }.join()
            Timer.scheduled(after: .zero) { _ in }
            loop.run(in: .default)
            #expect(loop.currentMode == nil)
            return Fate(witness)
        }
        #expect(fate.isFreed)
    }

    @Test(arguments: [false, true], [false, true])
    func `a source that is destroyed while a handler runs the loop ends the hosting after that run`(
        onAnotherThread: Bool, isHandler: Bool
    ) async {
        await #expect(processExitsWith: .success) { [onAnotherThread, isHandler] in
            try onAThread {
                let (loop, context) = (RunLoop.current, Context())
                var trace: [String] = []
                let main = MainLoop(context)
                try loop.attach(toGLib: main.pointer)
                let runNested = {
                    Timer.scheduled(after: .zero, forMode: .custom) { _ in
                        if onAnotherThread {
                            try! JoinableThread { destroySource(context) }.join()
                        } else {
                            destroySource(context)
                        }
                    }
                    Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in trace.append("nested") }
                    loop.run(in: .custom)
                    trace.append("returned")
                    main.quit()
                }
                loop.observe(.exit) { _ in trace.append("exit") }
                if isHandler {
                    loop.perform(order: 0) { runNested() }
                } else {
                    context.idle {
                        runNested()
                        return false
                    }
                }
                main.run()
                #expect(
                    trace == (isHandler ? ["nested", "returned", "exit"] : ["nested", "exit", "returned"]))
                #expect(loop.currentMode == nil)
            }
        }
    }

    @Test func `the loop's thread may end before its context`() async throws {
        let context = Context()
        let fate = try await onItsOwnThread {
            let witness = Witness()
            for _ in 0..<2 {
                try RunLoop.current.attach(toGLibContext: context.pointer) {
                    withExtendedLifetime(witness) {}
                }
            }
            return Fate(witness)
        }
        waitUntil { fate.isFreed }
        #expect(g_main_context_iteration(context.pointer, 0) == 0)
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

    @Test func `the main loop in GLib serves the main actor and the main queue`() async throws {
        #expect(
            try await probe("hosted") == [
                "main actor", "after a sleep", "main queue", "stream", "timer", "stopped",
            ])
    }

    @Test func `a GLib context in the main loop is served with the main actor`() async throws {
        #expect(try await probe("guest") == ["timeout", "main actor", "main queue", "idle", "stopped"])
    }

    /// The lines that `glib-probe` prints for a scenario.
    private func probe(_ scenario: String) async throws -> [String] {
        try await onItsOwnThread {
            let child = try Child("glib-probe", [scenario])
            let lines = child.readOutput().split(separator: "\n").map(String.init)
            return child.wait() == .exit(0) ? lines : lines + ["failed: \(child.readErrors())"]
        }
    }
}
