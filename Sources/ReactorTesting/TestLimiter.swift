import Glibc
import Reactor
import SystemPackage

/// Lets a bounded number of tests run at once, and ends the process when only tests are left that do not end.
///
/// With REACTOR_TESTING_PROGRESS in the environment it prints, every so many seconds, how many test cases have ended, and which
/// one has run longest.
final class TestLimiter: Sendable {
    static let shared = TestLimiter()

    /// The loop of the thread that watches the limits of tests.
    let loop: RunLoop
    private let state = Mutex(State())

    private struct State {
        /// How many tests have turns. One whose limit has passed has none, but may still run.
        var turnCount = 0
        /// Since when no test has had a turn; nil while one has.
        var idleSince: Deadline?
        var waiting: [CheckedContinuation<Void, Never>] = []
        var running: [ObjectIdentifier: (test: TestScope, start: Deadline)] = [:]
        var hanging: Set<ObjectIdentifier> = []
        var endedCount = 0

        /// The test whose turn is next.
        mutating func endTurn() -> CheckedContinuation<Void, Never>? {
            guard waiting.isEmpty else { return waiting.removeFirst() }
            turnCount -= 1
            if turnCount == 0 { idleSince = .now }
            return nil
        }
    }

    /// How many tests run at once: enough to keep the processors busy while most tests wait for the kernel. Under a sanitizer
    /// tests compute more than they wait, and contend for locks of the Swift runtime.
    private static let maximumConcurrency = {
        let processors = sysconf(CInt(_SC_NPROCESSORS_ONLN))
        return isSanitized ? max(3, processors) : max(8, 4 * processors)
    }()
    /// How long only hanging tests must have been left before the process is ended.
    private static let gracePeriod = Duration.seconds(5)

    private init() {
        _ = Leftovers.shared  // before this class opens descriptors
        guard let thread = try? RunLoopThread(name: "test limits") else {
            fatalError("The thread that watches the limits of tests cannot be started.")
        }
        loop = thread.runLoop
        let interval = environmentNumber("REACTOR_TESTING_PROGRESS")
        if let interval, interval > 0 {
            let timer = Timer(interval: .seconds(interval), repeats: true) { [self] _ in reportProgress() }
            loop.add(timer, forMode: .common)
        }
    }

    /// Waits for the turn of `test`, which begins then.
    func acquire(for test: TestScope) async {
        await withCheckedContinuation { continuation in
            let isNext = state.withLock { state in
                guard state.turnCount >= Self.maximumConcurrency else {
                    state.turnCount += 1
                    state.idleSince = nil
                    return true
                }
                state.waiting.append(continuation)
                return false
            }
            if isNext { continuation.resume() }
        }
        state.withLock { $0.running[ObjectIdentifier(test)] = (test, .now) }
    }

    /// The test has ended.
    func release(_ test: TestScope) {
        Leftovers.shared?.note(state.withLock { $0.running.values.map(\.test.name) })
        let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
            state.running[ObjectIdentifier(test)] = nil
            state.endedCount += 1
            return state.hanging.remove(ObjectIdentifier(test)) == nil ? state.endTurn() : nil
        }
        next?.resume()
    }

    /// Gives the turn of a test to another, because its limit has passed.
    func noteHanging(_ test: TestScope) {
        let next = state.withLock { state in
            state.hanging.insert(ObjectIdentifier(test))
            return state.endTurn()
        }
        next?.resume()
        endProcessWhenIdle()
    }

    private func endProcessWhenIdle() {
        loop.add(
            Timer(fireDate: .now + Self.gracePeriod) { [self] _ in
                let (idleSince, tests) = state.withLock { state in
                    (state.idleSince, state.hanging.compactMap { state.running[$0]?.test.name })
                }
                guard !tests.isEmpty else { return }
                guard let idleSince, idleSince + Self.gracePeriod <= .now else { return endProcessWhenIdle() }
                Leftovers.shared?.cancel()
                write(
                    "Exiting: these tests exceeded their limit and are still running: \(tests.joined(separator: ", "))."
                )
                exit(EXIT_FAILURE)
            }, forMode: .common)
    }

    private func reportProgress() {
        let (count, oldest) = state.withLock { state in
            (state.endedCount, state.running.values.min { $0.start < $1.start })
        }
        let seconds = oldest.map { $0.start.duration(to: .now).components.seconds }
        let running = oldest.map { ". Running for \(seconds ?? 0) s: \($0.test.name)" } ?? ""
        write("\(count) test cases have ended\(running)")
    }

    /// Prints a line, but not through stdio: flushing that waits for each of its streams, and so for a test that is blocked in
    /// reading one.
    private func write(_ line: String) { _ = try? FileDescriptor.standardOutput.writeAll("\(line)\n".utf8) }
}
