import Glibc
import Reactor

/// Lets a bounded number of tests run at once, and ends the process when only tests are left that do not end.
final class Turns: Sendable {
    static let shared = Turns()

    /// The loop of the thread that watches the limits of tests.
    let loop: RunLoop
    private let state = Mutex(State())

    fileprivate struct State {
        var runningCount = 0
        var waiting: [CheckedContinuation<Void, Never>] = []
        /// The names of the tests that run although their limit has passed. They count as running no more.
        var hanging: [String] = []
    }

    /// How many tests run at once: enough to keep the processors busy while most tests wait for the kernel.
    private static let width = max(8, 4 * sysconf(CInt(_SC_NPROCESSORS_ONLN)))
    /// How long only hanging tests must have been left before the process is ended.
    private static let patience = Duration.seconds(5)

    private init() {
        guard let thread = try? RunLoopThread(name: "test limits") else {
            fatalError("The thread that watches the limits of tests cannot be started.")
        }
        loop = thread.runLoop
    }

    /// Waits for a turn.
    func take() async {
        await withCheckedContinuation { continuation in
            let isNext = state.withLock { state in
                guard state.runningCount >= Self.width else {
                    state.runningCount += 1
                    return true
                }
                state.waiting.append(continuation)
                return false
            }
            if isNext { continuation.resume() }
        }
    }

    /// Ends the turn of the test called `name`.
    func give(_ name: String) {
        let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
            if let index = state.hanging.firstIndex(of: name) {
                state.hanging.remove(at: index)
                return nil
            }
            return state.endTurn()
        }
        next?.resume()
    }

    /// Gives the turn of a test to another, because it has exceeded its limit.
    func noteHanging(_ name: String) {
        let next = state.withLock { state in
            state.hanging.append(name)
            return state.endTurn()
        }
        next?.resume()
        endProcessWhenIdle()
    }

    private func endProcessWhenIdle() {
        loop.add(
            Timer(fireDate: .now + Self.patience) { [self] _ in
                let (isIdle, names) = state.withLock { ($0.runningCount == 0, $0.hanging) }
                guard !names.isEmpty else { return }
                guard isIdle else { return endProcessWhenIdle() }
                print("These tests never end: \(names.joined(separator: ", ")).")
                exit(EXIT_FAILURE)
            }, forMode: .common)
    }
}

extension Turns.State {
    /// The test whose turn is next.
    fileprivate mutating func endTurn() -> CheckedContinuation<Void, Never>? {
        guard waiting.isEmpty else { return waiting.removeFirst() }
        runningCount -= 1
        return nil
    }
}
