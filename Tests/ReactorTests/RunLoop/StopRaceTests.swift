import Glibc
import Reactor
import ReactorTesting
import Synchronization
import Testing

// One after the other: each case keeps two processors busy.
@Suite(.runLoop, .serialized) struct StopRaceTests {
    @Test(arguments: [(Activation.outermost, 10_000), (.nested, 5_000), (.hosted, 1_000)])
    func `a thread that sees a mode stops the activation in it, and no other`(
        kind: Activation, count: Int
    ) async throws {
        let (stopped, outer) = try await onItsOwnThread { try stopOften(count, kind) }
        #expect(stopped == count)
        #expect(outer == .finished)
    }
}

/// What another thread stops.
enum Activation { case outermost, nested, hosted }

/// Has another thread stop `count` activations in `RunLoop.Mode.inner`, or those before the first that it does not stop.
///
/// - Returns: How many were stopped, and how the activation around them ended.
private func stopOften(_ count: Int, _ kind: Activation) throws -> (Int, RunLoop.RunResult) {
    let loop = RunLoop.current
    let held = [loop.hold(.default), loop.hold(.inner)]
    let stopper = Stopper()
    let thread = try JoinableThread(name: "stopping") { stopper.stop(loop) }
    let stopped = Shared(0)
    let runAll: @Sendable () -> Void = {
        while stopped.value < count, isStopped(loop, kind) {
            stopped.update { $0 += 1 }
            stopper.noteEnd()
        }
        stopper.finish()
        for source in held { source.invalidate() }
    }
    if kind == .outermost { runAll() } else { loop.perform(runAll) }
    let outer = loop.run(in: .default)
    thread.join()
    return (stopped.value, outer)
}

/// Runs `loop` once; false if it is not stopped.
private func isStopped(_ loop: RunLoop, _ kind: Activation) -> Bool {
    guard kind == .hosted else {
        return loop.run(in: .inner, until: .minutesAway) == .stopped
    }
    guard let hosting = try? RunLoop.Hosting(loop, mode: .inner) else { return false }
    defer { hosting.end() }
    while hosting.dispatch() {
        var request = pollfd(fd: hosting.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
        guard poll(&request, 1, 120_000) > 0 else { return false }
    }
    return true
}

/// Stops each activation in `RunLoop.Mode.inner` once, as soon as its thread sees the mode.
private final class Stopper: Sendable {
    private let ended = Atomic(0)

    func noteEnd() { ended.add(1, ordering: .releasing) }

    func finish() { ended.store(-1, ordering: .releasing) }

    func stop(_ loop: RunLoop) {
        var (known, looks) = (0, 0)
        while known >= 0 {
            if loop.currentMode == .inner {
                loop.stop()
                while ended.load(ordering: .acquiring) == known { pause(&looks) }
            }
            known = ended.load(ordering: .acquiring)
            pause(&looks)
        }
    }

    /// Without a system call, most times: the next look may meet an activation that is just beginning.
    private func pause(_ looks: inout Int) {
        looks += 1
        if looks % 100 == 0 { sched_yield() }
    }
}
