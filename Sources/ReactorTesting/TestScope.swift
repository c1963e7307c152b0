import Glibc
import Reactor
import SystemPackage
import Testing

/// One test, or one case of it, while it runs.
final class TestScope: Sendable {
    /// The scope of the test that the current task belongs to.
    @TaskLocal static var current: TestScope?

    let name: String
    private let thread: TestThread
    private let alarm = Mutex<Timer?>(nil)
    /// Whether the test has ended in time.
    private let outcome = AsyncPromise<Bool>()

    init(name: String) {
        self.name = name
        thread = TestThread(name: name)
    }

    /// The kernel's number of the current test's thread; 0 for none.
    static var currentThread: pid_t { current?.thread.number ?? 0 }

    private let hasTimedOut = Mutex(false)

    /// Whether the current test has exceeded its limit: what runs a loop again and again must end.
    static var isOverdue: Bool { current?.hasTimedOut.withLock { $0 } ?? false }

    /// Runs `function`, which is a test, in its turn and for at most `timeLimit`.
    func run(timeLimit: Duration, _ function: @Sendable () async throws -> Void) async throws {
        await TestLimiter.shared.acquire(for: self)
        defer { TestLimiter.shared.release(self) }
        setTimeLimit(timeLimit)
        try await runUntilLimit(function)
    }

    private func runUntilLimit(_ function: @Sendable () async throws -> Void) async throws {
        async let result: Void = perform(function)
        guard await outcome.wait() else {
            Issue.record("This test has exceeded its time limit. \(explanation)")
            hasTimedOut.withLock { $0 = true }
            TestLimiter.shared.noteHanging(self)
            thread.runLoop?.stop()
            return  // This cancels the test, and waits for it.
        }
        try await result
    }

    /// Counts `timeLimit` from now, instead of the limit that was set before.
    func setTimeLimit(_ timeLimit: Duration) { setAlarm(RunningLimit(timeLimit * limitFactor)) }

    private func setAlarm(_ limit: RunningLimit) {
        let alarm = Timer(fireDate: limit.end) { [weak self] _ in
            if limit.end > .now { self?.setAlarm(limit) } else { self?.end(inTime: false) }
        }
        let previous = self.alarm.withLock { exchange(&$0, with: alarm) }
        previous?.invalidate()
        TestLimiter.shared.loop.add(alarm, forMode: .common)
    }

    private func perform(_ function: @Sendable () async throws -> Void) async throws {
        defer {
            thread.end()
            end(inTime: true)
        }
        try await withTaskExecutorPreference(thread) { try await function() }
    }

    private func end(inTime: Bool) {
        let alarm = alarm.withLock { $0.take() }
        alarm?.invalidate()
        outcome.set(inTime)
    }

    /// The explanations of the loops that the test may be waiting for, and the items of the test's loop.
    private var explanation: String {
        let main = RunLoop.main.currentMode == nil ? "" : RunLoop.main.explain()
        guard let loop = thread.runLoop, loop.currentMode != nil else {
            return "The test's thread is in a call that does not run its loop. \(main)"
        }
        return "\(loop.explain()) \(main)\n\(loop.debugDescription)"
    }
}

/// A limit that counts since a test began.
private struct RunningLimit {
    /// A test that hangs must end also on a machine that is always busy.
    private static let longestExtension = 4

    let length: Duration
    private let start = Deadline.now
    private let waitBefore = processorWait()

    init(_ length: Duration) { self.length = length }

    /// When it is over, as far as is known. Later, the longer threads have waited for a processor.
    var end: Deadline {
        start + length + min(processorWait() - waitBefore, length * Self.longestExtension)
    }
}

/// For how long a thread of the machine has been waiting for a processor since it was started; zero if the kernel does not say
/// (/proc/pressure/cpu).
private func processorWait() -> Duration {
    guard let file = try? FileDescriptor.open(FilePath("/proc/pressure/cpu"), .readOnly) else { return .zero }
    var bytes: [UInt8] = []
    _ = try? file.closeAfter {
        try bytes.append(upTo: 256) { room in try SystemCall.read(file.rawValue, into: &room) }
    }
    let line = String(decoding: bytes, as: UTF8.self).prefix { $0 != "\n" }
    let total = line.split(separator: "=").last.flatMap { Int($0) }
    return .microseconds(total ?? 0)
}

/// How many times as long as its limit a test may run: more under a sanitizer, which makes it several times slower.
private let limitFactor: Int = {
    let factor = environmentNumber("REACTOR_TESTING_PATIENCE") ?? 1
    return max(factor, 1) * (isSanitized ? 3 : 1)
}()

/// Whether the process runs under the thread or the address sanitizer.
package let isSanitized = unsafe dlsym(nil, "__tsan_init") != nil || dlsym(nil, "__asan_init") != nil
