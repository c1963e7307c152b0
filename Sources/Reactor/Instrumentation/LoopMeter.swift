import CReactorLinux
import Glibc
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

        func set(_ value: Int) { number.store(value, ordering: .relaxed) }
    }

    let processorClock = ProcessorClock()

    let passes = Counter()

    let wakeUpsByTime = Counter()
    let wakeUpsByDescriptor = Counter()
    let wakeUpsByThread = Counter()

    let timers = Counter()
    let blocks = Counter()
    /// Events, signalled sources, observers and jobs.
    let others = Counter()

    /// How many blocks and executors the loop has taken in and not served.
    let waiting = Counter()
    private let callbackKind = Atomic(CallbackKind.none)

    /// A callback that is in progress.
    struct Call: Sendable {
        var name: String
        /// The name of its account.
        var account: String
        /// When it began, moved by the runs of the loop within it.
        var start: Int64
        /// When the call was paused because it runs this loop or its host's; nil while it counts.
        var pausedSince: Int64?
        /// What the callback is blocked on, as a clause.
        var wait: String?
        /// How often it has been reported.
        var reportCount = 0

        /// When it would have begun if the loop had been busy ever since.
        func effectiveStart(at now: Int64) -> Int64 { start + (pausedSince.map { now - $0 } ?? 0) }
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
        /// Whether the debug mode's thread looks at the calls.
        var isSupervised = false
        var accounts: [String: Account] = [:]
        /// The thread that is waking the loop, until the loop counts that.
        var waker: String?
        /// The pass in which a timer or a descriptor has ended a sleep, until the first of them is called.
        var wokenPass: Int?
        /// How late timers have fired, in nanoseconds.
        var lateness: Int64 = 0
        var greatestLateness: Int64 = 0
    }

    private let measured = Mutex(Measured())
    private let loopName: String

    init(loopName: String) { self.loopName = loopName }

    // MARK: Callbacks

    /// Calls a callback, and measures it if callbacks are measured.
    ///
    /// - Parameters:
    ///   - callbackKind: What kind of callback it is.
    ///   - begin: Calls ``push(_:account:due:mayHaveWoken:)``, in a function that is not inlined: a callback that is not
    ///     measured costs one test.
    ///   - body: Calls the client. Returns whether the client has been called at all.
    @inline(__always)
    func call(_ callbackKind: CallbackKind, _ begin: () -> Void, _ body: () -> Bool) -> Bool {
        self.callbackKind.store(callbackKind, ordering: .relaxed)
        defer { self.callbackKind.store(.none, ordering: .relaxed) }
        guard LoopDiagnostics.isMeasuring else { return body() }
        begin()
        let hasCalled = body()
        pop(hasCalled)
        return hasCalled
    }

    /// The same for a body that always calls the client.
    @inline(__always)
    func call(_ callbackKind: CallbackKind, _ begin: () -> Void, _ body: () -> Void) {
        _ = call(callbackKind, begin) {
            body()
            return true
        }
    }

    /// What the loop is calling, of nested callbacks the innermost. From any thread.
    var currentCallbackKind: CallbackKind { callbackKind.load(ordering: .relaxed) }

    /// Replaces what the loop is calling, for the beginning or the end of a nested run; returns what it was.
    func exchangeCallbackKind(_ new: CallbackKind) -> CallbackKind {
        defer { callbackKind.store(new, ordering: .relaxed) }
        return currentCallbackKind
    }

    /// Begins a callback.
    ///
    /// - Parameters:
    ///   - account: The name of its account; nil for the same.
    ///   - due: When it was due, for a timer.
    ///   - mayHaveWoken: Whether the kernel may have ended the sleep for it: the first such callback of the pass after a
    ///     sleep has, unless another thread did.
    @inline(never)
    func push(_ name: String, account: String? = nil, due: Int64? = nil, mayHaveWoken: Bool = false) {
        let now = reactor_monotonic_nanoseconds()
        let (account, isReporting) = (account ?? name, LoopDiagnostics.isReporting)
        let isNew = measured.withLock { measured in
            measured.calls.append(Call(name: name, account: account, start: now))
            if let due {
                measured.lateness += now - due
                measured.greatestLateness = max(measured.greatestLateness, now - due)
            }
            if mayHaveWoken, measured.wokenPass.take() == passes.value {
                measured.change(account) { $0.wakeUps += 1 }
            }
            guard isReporting, !measured.isSupervised else { return false }
            measured.isSupervised = true
            return true
        }
        if isNew { Watchdog.superviseCalls(of: self) }
    }

    /// Changes the innermost call in progress, if there is one.
    @discardableResult
    private func changeCall<Result: Sendable>(_ change: (inout Call) -> Result?) -> Result? {
        measured.withLock { measured in
            guard let last = measured.calls.indices.last else { return nil }
            return change(&measured.calls[last])
        }
    }

    /// Names the callback in progress, if the loop has no better name for it.
    func rename(_ name: String) { changeCall { ($0.name, $0.account) = (name, name) } }

    /// Notes that a sleep has ended.
    func noteWakeUp(byThread: Bool) {
        measured.withLock { measured in
            let waker = measured.waker.take()
            measured.wokenPass = byThread ? nil : passes.value
            if byThread, let waker { measured.change(waker) { $0.wakeUps += 1 } }
        }
    }

    @inline(never)
    private func pop(_ hasCalled: Bool) {
        let now = reactor_monotonic_nanoseconds()
        let done = measured.withLock { measured -> (call: Call, time: Int64)? in
            guard let call = measured.calls.popLast(), hasCalled else { return nil }
            let time = now - call.effectiveStart(at: now)
            measured.change(call.account) { account in
                account.callbacks += 1
                account.nanoseconds += time
                account.longest = max(account.longest, time)
            }
            return (call, time)
        }
        guard LoopDiagnostics.isReporting, let (call, time) = done, isSlow(call, time, now) else { return }
        LoopDiagnostics.report(
            .slowCallback,
            "The \(call.name) kept the \(loopName) busy for \(Duration.nanoseconds(time).rounded).")
    }

    /// Whether a callback that has returned took longer than the limit, or was reported while it lasted.
    private func isSlow(_ call: Call, _ time: Int64, _ now: Int64) -> Bool {
        let limit = LoopDiagnostics.slowCallback.wholeNanoseconds
        if call.reportCount > 0 || time <= limit { return call.reportCount > 0 }
        return time - Watchdog.pauses(from: now - time, to: now) > limit
    }

    /// Pauses the current callback's clock until ``resumeCall()``.
    ///
    /// - Returns: Whether there is a callback that was not paused already.
    @discardableResult
    func pauseCall() -> Bool {
        let now = reactor_monotonic_nanoseconds()
        return changeCall { call in
            defer { call.pausedSince = call.pausedSince ?? now }
            return call.pausedSince == nil
        } ?? false
    }

    /// Resumes the current callback's clock, if it is paused.
    func resumeCall() {
        let now = reactor_monotonic_nanoseconds()
        changeCall { ($0.start, $0.pausedSince) = ($0.effectiveStart(at: now), nil) }
    }

    /// Sets what the current callback is blocked on, as a clause; nil for nothing.
    func noteWait(_ wait: String?) { changeCall { $0.wait = wait } }

    /// The current callback, and for how long it has run; nil unless callbacks are measured, and while it runs the loop.
    /// From any thread.
    var current: (call: Call, time: Duration)? {
        guard let call = measured.withLock({ $0.calls.last }), call.pausedSince == nil else { return nil }
        return (call, .nanoseconds(reactor_monotonic_nanoseconds() - call.start))
    }

    /// Called by the thread that wakes the loop.
    func noteWaker(_ thread: String) { measured.withLock { $0.waker = thread } }

    /// From any thread.
    var measurements: Measured { measured.withLock { $0 } }

    // MARK: In debug mode

    /// Reports the current callback once it has lasted for the limit, and again at ten times the limit. Called by the debug
    /// mode's thread.
    func reportBlockage() {
        let (limit, now) = (LoopDiagnostics.slowCallback.wholeNanoseconds, reactor_monotonic_nanoseconds())
        let blockage = changeCall { call -> (call: Call, time: Int64)? in
            guard call.pausedSince == nil else { return nil }
            let time = now - call.start - Watchdog.pauses(from: call.start, to: now)
            guard time / Self.multiple(forReport: call.reportCount) > limit else { return nil }
            call.reportCount += 1
            return (call, time)
        }
        guard let (call, time) = blockage else { return }
        let wait = call.wait.map { " It is \($0)." } ?? ""
        LoopDiagnostics.report(
            .blockedLoop,
            "The \(call.name) has kept the \(loopName) busy for \(Duration.nanoseconds(time).rounded), and has not "
                + "returned.\(wait)")
    }

    /// The multiple of the limit at which the next report is due. There are two reports.
    private static func multiple(forReport count: Int) -> Int64 { count == 0 ? 1 : count == 1 ? 10 : .max }

    /// Forgets the callbacks of a thread that has ended within them.
    func end() { measured.withLock { $0.calls = [] } }
}

extension LoopMeter.Measured {
    /// Enough for the items of a large program, and little memory. A program that labels each connection would need more
    /// and more.
    private static var mostAccounts: Int { 1_000 }

    fileprivate mutating func change(_ name: String, _ change: (inout LoopMeter.Account) -> Void) {
        let isNew = accounts[name] == nil
        change(&accounts[isNew && accounts.count >= Self.mostAccounts ? "others" : name, default: .init()])
    }
}

/// What kind of callback a loop is in: one word, which any thread may read.
struct CallbackKind: RawRepresentable, AtomicRepresentable, Equatable {
    /// The descriptor of an event source, -1 for one without a descriptor, or a constant.
    let rawValue: CInt

    init(rawValue: CInt) { self.rawValue = rawValue }

    /// The callback of an event source.
    init(descriptor: CInt) { rawValue = descriptor }

    static var none: CallbackKind { CallbackKind(rawValue: .min) }
    static var timer: CallbackKind { CallbackKind(rawValue: -2) }
    static var source: CallbackKind { CallbackKind(rawValue: -3) }
    static var observer: CallbackKind { CallbackKind(rawValue: -4) }
    static var block: CallbackKind { CallbackKind(rawValue: -5) }
    static var job: CallbackKind { CallbackKind(rawValue: -6) }

    /// What is being called; nil if nothing is.
    var name: String? {
        switch self {
        case .none: nil
        case .timer: "a timer"
        case .source: "a signalled source or a mailbox"
        case .observer: "an observer or an ordered block"
        case .block: "a posted block"
        case .job: "a job of an executor"
        case CallbackKind(descriptor: -1): "a source of events without a descriptor"
        default: "the source of \(descriptorName(rawValue))"
        }
    }
}

/// The CPU time of one thread, readable from any thread.
final class ProcessorClock: Sendable {
    private enum State {
        /// The thread's clock, which lasts as long as the thread.
        case running(clockid_t)
        case ended(at: Int64)
    }

    private let state = Mutex(State.ended(at: 0))

    /// Begins with the calling thread.
    func begin() {
        var clock = clockid_t()
        guard unsafe pthread_getcpuclockid(pthread_self(), &clock) == 0 else { return }
        state.withLock { [clock] in $0 = .running(clock) }
    }

    /// Freezes the clock. Call before the thread exits: the kernel reuses thread IDs.
    func end() { state.withLock { $0 = .ended(at: Self.nanoseconds($0)) } }

    /// 0 before the beginning.
    var nanoseconds: Int64 { state.withLock { Self.nanoseconds($0) } }

    private static func nanoseconds(_ state: State) -> Int64 {
        switch state {
        case .ended(let time): return time
        case .running(let clock):
            var time = timespec()
            // Fails in a child of fork(2), which does not have the thread.
            guard unsafe clock_gettime(clock, &time) == 0 else { return 0 }
            return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        }
    }
}
