import Dispatch
import Glibc
import Reactor

// MARK: The main queue

@MainActor func drainEndsActivation() {
    DispatchQueue.main.async {
        print("a")
        DispatchQueue.main.async { print("posted by a") }
    }
    DispatchQueue.main.async { print("b") }
    for _ in 0..<2 { print(RunLoop.main.run(mode: .default, before: .distantFuture)) }
    DispatchQueue.global().async { DispatchQueue.main.async { print("while asleep") } }
    print(RunLoop.main.run(in: .default, returnAfterSourceHandled: true))
}

@MainActor func onlyCommonModesDrain() {
    hold(.custom)
    DispatchQueue.main.async { print("block") }
    RunLoop.main.run(mode: .custom, before: .distantPast)
    print("custom")
    RunLoop.main.addCommonMode(.custom)
    RunLoop.main.run(mode: .custom, before: .distantPast)
}

/// Until the debug mode has reported that.
@MainActor func waitingMainQueue() {
    LoopDiagnostics.setReportHandler { report in
        print(report)
        RunLoop.main.stop()
    }
    hold(.custom)
    DispatchQueue.main.async { print("never") }
    RunLoop.main.perform(inModes: [.custom]) { print(RunLoop.main.explain()) }
    RunLoop.main.run(in: .custom)
    LoopDiagnostics.isDebugging = false
}

/// Until the debug mode has reported that.
@MainActor func hangingMainActor() {
    LoopDiagnostics.setReportHandler { report in
        print(report)
        exit(0)
    }
    let never = DispatchSemaphore(value: 0)
    func hang() { never.wait() }
    Task { @MainActor in hang() }
    RunLoop.main.run(in: .default)
}

@MainActor func nestedInDrain() {
    DispatchQueue.main.async {
        DispatchQueue.main.async { print("inner block") }
        print("empty:", RunLoop.main.run(mode: .default, before: .distantFuture))
        Timer.scheduled(after: .zero) { _ in print("timer") }
        print("with a timer:", RunLoop.main.run(mode: .default, before: .distantFuture))
        let source = RunLoop.Source {}
        RunLoop.main.add(source, forMode: .common)
        print("with a common source:", RunLoop.main.run(mode: .default, before: .distantPast))
        source.invalidate()
    }
    RunLoop.main.run(mode: .default, before: .distantFuture)
    print("outer has ended")
    RunLoop.main.run(mode: .default, before: .distantFuture)
}

@MainActor func nestedInTimer() {
    Timer.scheduled(after: .zero) { _ in
        DispatchQueue.main.async { print("block") }
        print(RunLoop.main.run(mode: .default, before: .distantFuture))
    }
    RunLoop.main.run(mode: .default, before: .distantPast)
}

@MainActor func mainActor() {
    let isDone = Flag()
    Task { @MainActor in
        print("a")
        await Task.yield()
        print("b")
        try? await Task.sleep(for: .milliseconds(1))
        MainActor.assertIsolated()
        print("c on main:", RunLoop.main.isCurrent)
        isDone.isSet = true
    }
    RunLoop.main.run(mode: .default, before: .distantFuture)
    print("returned")
    while !isDone.isSet, RunLoop.main.run(mode: .default, before: .distantFuture) {}
}

/// A host that knows only poll(2) and the descriptor runs the main loop.
@MainActor func hostedMainLoop() throws {
    Task { @MainActor in
        print("a")
        await Task.yield()
        try? await Task.sleep(for: .milliseconds(1))
        MainActor.assertIsolated()
        print("b in", RunLoop.main.currentMode ?? "no mode")
        DispatchQueue.global().async {
            DispatchQueue.main.async {
                print("main queue")
                RunLoop.main.stop()
            }
        }
    }
    let hosting = try RunLoop.Hosting(.main)
    var request = pollfd(fd: hosting.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    repeat { poll(&request, 1, -1) } while hosting.dispatch()
    print("stopped")
}

@MainActor func hostingDescriptor() throws {
    func isOpen(_ number: CInt) -> Bool { fcntl(number, F_GETFD) >= 0 }
    let first = try RunLoop.Hosting(.main)
    print("open", isOpen(first.descriptor.rawValue))
    first.end()
    print("ended", !isOpen(first.descriptor.rawValue))
    var second: RunLoop.Hosting? = try RunLoop.Hosting(.main)
    let number = second?.descriptor.rawValue ?? -1
    second = nil
    print("released", !isOpen(number))
}

@MainActor func neverEmpty() {
    print(RunLoop.main.run(in: .default, until: .now.advanced(by: .milliseconds(2))))
    print(RunLoop.main.run(in: .tracking, until: .now.advanced(by: .milliseconds(2))))
    print(RunLoop.main.run(in: .custom))
}

@MainActor func runNeverReturns() {
    Timer.scheduled(after: .zero) { _ in RunLoop.main.stop() }
    Timer.scheduled(after: .milliseconds(5)) { _ in
        print("still running")
        exit(0)
    }
    RunLoop.main.run()
    print("returned")
}

@MainActor func asleepAfterDrain() {
    var passes = 0
    let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in passes += 1 }
    RunLoop.main.add(observer, forMode: .default)
    DispatchQueue.main.async { print("block") }
    RunLoop.main.run(in: .default, until: .now.advanced(by: .milliseconds(30)))
    print(passes < 6 ? "slept" : "spun")
}

@MainActor func endlessQueue() {
    func again() { DispatchQueue.main.async { MainActor.assumeIsolated { again() } } }
    again()
    Timer.scheduled(after: .milliseconds(2)) { _ in
        print("timer")
        RunLoop.main.stop()
    }
    print(RunLoop.main.run(in: .default))
}

/// A variable of the main actor that a task sets.
@MainActor final class Flag { var isSet = false }

extension RunLoop.Mode {
    static var custom: RunLoop.Mode { RunLoop.Mode("custom") }
}

/// Keeps `mode` from being empty.
func hold(_ mode: RunLoop.Mode) { RunLoop.main.add(RunLoop.Source {}, forMode: mode) }
