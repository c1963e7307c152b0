import CReactorLinux
import Synchronization

/// Counts what one loop does and, while callbacks are measured, times them and notes what wakes the loop.
///
/// The loop's thread counts, any thread reads. What is counted always costs a load and a store; what needs the clock or a
/// name is done only while ``LoopDiagnostics/isMeasuring``.
final class LoopMeter: Sendable {
    /// A number that one thread changes and any thread reads.
    struct Counter: ~Copyable, Sendable {
        private let number = Atomic(0)

        var value: Int { number.load(ordering: .relaxed) }

        @inline(__always)
        func add(_ count: Int = 1) {
            number.store(number.load(ordering: .relaxed) &+ count, ordering: .relaxed)
        }

        @inline(__always)
        func set(_ value: Int) { number.store(value, ordering: .relaxed) }
    }

    let passes = Counter()

    let wakeUpsByTime = Counter()
    let wakeUpsByDescriptor = Counter()
    let wakeUpsByThread = Counter()

    let timers = Counter()
    let events = Counter()
    let sources = Counter()
    let observers = Counter()
    let blocks = Counter()
    let jobs = Counter()

    /// A callback that is under way.
    struct Call: Sendable {
        var name: String
        /// When it began, moved by the runs of the loop within it.
        var start: Int64
    }

    /// What one item, or one kind of items, has cost.
    struct Account: Sendable {
        var wakeUps = 0
        var callbacks = 0
        var nanoseconds: Int64 = 0
        var longest: Int64 = 0
    }

    struct Measured: Sendable {
        /// The innermost comes last.
        var calls: [Call] = []
        var accounts: [String: Account] = [:]
        /// The thread that has woken the loop, until a callback begins.
        var waker: String?
        /// How many wake-ups there had been when the last callback began.
        var wakeUps = 0
        /// How late timers have fired, in nanoseconds.
        var lateness: Int64 = 0
        var greatestLateness: Int64 = 0
    }

    private let measured = Mutex(Measured())
    private let loopName: String

    init(loopName: String) { self.loopName = loopName }

    // MARK: Callbacks

    /// Makes a callback, and measures it if callbacks are measured.
    ///
    /// - Parameters:
    ///   - begin: Calls ``push(_:due:)``, in a function that is not inlined: a callback that is not measured costs one
    ///     test.
    ///   - body: Calls the client. Returns whether the client has been called at all.
    @inline(__always)
    func measure(_ begin: () -> Void, _ body: () -> Bool) -> Bool {
        guard LoopDiagnostics.isMeasuring else { return body() }
        begin()
        let hasCalled = body()
        pop(hasCalled)
        return hasCalled
    }

    /// The same for a body that always calls the client.
    @inline(__always)
    func measure(_ begin: () -> Void, _ body: () -> Void) {
        guard LoopDiagnostics.isMeasuring else { return body() }
        begin()
        body()
        pop(true)
    }

    /// The first callback after a sleep is what has ended it, unless another thread has.
    ///
    /// - Parameter due: When it was due, for a timer.
    @inline(never)
    func push(_ name: String, due: Int64? = nil) {
        let now = reactor_monotonic_nanoseconds()
        let wakeUps = wakeUps
        measured.withLock { measured in
            measured.calls.append(Call(name: name, start: now))
            if let due {
                measured.lateness += now - due
                measured.greatestLateness = max(measured.greatestLateness, now - due)
            }
            let waker = measured.waker.take()
            guard measured.wakeUps != wakeUps else { return }
            measured.wakeUps = wakeUps
            measured.change(waker ?? name) { $0.wakeUps += 1 }
        }
    }

    private var wakeUps: Int { wakeUpsByTime.value + wakeUpsByDescriptor.value + wakeUpsByThread.value }

    /// Names the callback under way, which the loop does not know better.
    func rename(_ name: String) {
        measured.withLock { measured in
            if let last = measured.calls.indices.last { measured.calls[last].name = name }
        }
    }

    @inline(never)
    private func pop(_ hasCalled: Bool) {
        let now = reactor_monotonic_nanoseconds()
        let slow = measured.withLock { measured -> (name: String, time: Int64)? in
            guard let call = measured.calls.popLast(), hasCalled else { return nil }
            let time = now - call.start
            measured.change(call.name) { account in
                account.callbacks += 1
                account.nanoseconds += time
                account.longest = max(account.longest, time)
            }
            return (call.name, time)
        }
        guard LoopDiagnostics.isReporting, let slow else { return }
        let time = Duration.nanoseconds(slow.time)
        guard time > LoopDiagnostics.slowCallback else { return }
        LoopDiagnostics.report(
            .slowCallback, "The \(slow.name) kept the \(loopName) busy for \(time.rounded).")
    }

    /// Does not count the time since `start` as the callback's that is under way: the loop was running.
    func exclude(since start: Int64) {
        let now = reactor_monotonic_nanoseconds()
        measured.withLock { measured in
            if let last = measured.calls.indices.last { measured.calls[last].start += now - start }
        }
    }

    /// The callback under way and for how long it has been; nil unless callbacks are measured. From any thread.
    var current: (name: String, time: Duration)? {
        guard let call = measured.withLock({ $0.calls.last }) else { return nil }
        return (call.name, .nanoseconds(reactor_monotonic_nanoseconds() - call.start))
    }

    /// Called by the thread that wakes the loop.
    func noteWaker(_ thread: String) { measured.withLock { $0.waker = thread } }

    /// From any thread.
    var measurements: Measured { measured.withLock { $0 } }
}

extension LoopMeter.Measured {
    /// Enough for the items of a large program, and little memory. Connections have names of their own, so a server would
    /// need more and more.
    private static var mostAccounts: Int { 1_000 }

    fileprivate mutating func change(_ name: String, _ change: (inout LoopMeter.Account) -> Void) {
        let isNew = accounts[name] == nil
        change(&accounts[isNew && accounts.count >= Self.mostAccounts ? "others" : name, default: .init()])
    }
}
