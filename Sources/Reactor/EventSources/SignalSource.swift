import CReactorLinux
import SystemPackage

/// Calls a closure on a run loop's thread when the process receives a POSIX signal.
///
/// Any number of sources, on any number of loops, may catch the same signal: each is called. While there is one, the signal's
/// earlier action (by default, SIGINT ends the process) does not happen; when the last is cancelled, that action is restored.
/// Deliveries that arrive between two passes of the loop are counted and reported together.
///
/// Making a source, and adding one to a mode, catches the signal whatever its disposition was, including `SIG_IGN`. If other
/// code changes the disposition after that, no source gets the signal until one is made or added again; the disposition that
/// this code has set is then the one that is restored. A child of fork(2) has the earlier actions, and only the sources that
/// it makes itself.
///
/// A source and its loop belong to one thread; while it is in a loop, every method traps on another. The source uses
/// sigaction(2) with `SA_RESTART` and an eventfd(2): the signal need not be blocked, and any thread may receive it. A signal
/// that all threads block is not delivered.
///
/// In async code, use ``RunLoop/signals(_:inModes:)``.
///
/// ```swift
/// let interrupt = try SignalSource(.interrupt) { source, _ in
///     print("stopping")
///     source.cancel()
/// }
/// try RunLoop.main.add(interrupt, forMode: .common)
/// ```
public final class SignalSource: EventSource {
    /// The signal.
    public let signal: Signal

    private(set) var subscription: SignalSubscription?
    private var handler: ((SignalSource, Int) -> Void)?

    /// Begins to catch `signal`; deliveries are counted until the source is in a loop.
    ///
    /// - Parameters:
    ///   - signal: The signal to catch.
    ///   - handler: Called with the source and the number of deliveries since the last call, at least one.
    /// - Throws: ``IOError`` with `Errno.invalidArgument` for a signal that cannot be caught (SIGKILL, SIGSTOP) or that
    ///   reports a fault of the program itself (SIGSEGV and its like); with `Errno.tooManyOpenFiles` if no eventfd
    ///   can be made.
    public init(
        _ signal: Signal, handler: @escaping (SignalSource, _ deliveries: Int) -> Void
    ) throws(IOError) {
        let subscription = try attempt(.watch, "\(signal)") { () throws(Errno) in
            try SignalSubscription(to: signal)
        }
        (self.signal, self.subscription, self.handler) = (signal, subscription, handler)
        super.init(subscription.counter, for: .readable)
    }

    override var summary: String { "\(signal)\(isValid ? "" : " (cancelled)")" }

    override var subject: String { "\(signal)" }

    override var silence: String { "no signal has been delivered since the last call" }

    override func serve(_ readiness: Readiness) -> Bool {
        let count = takeCount(ofEventCounter: number)
        if count > 0, let handler { handler(self, Int(clamping: count)) }
        return true
    }

    /// Catches the signal again, in case other code has changed its disposition.
    override func joined(_ mode: RunLoop.Mode) { subscription?.catchSignal() }

    override func releaseResources() {
        subscription = nil
        let handler = handler.take()
        withExtendedLifetime(handler) {}
    }
}

/// Catches a signal and counts it in an eventfd(2) until its lifetime ends; the last one restores the earlier action.
final class SignalSubscription: Sendable {
    let signal: Signal
    let counter: CInt
    private let owner: DescriptorOwner
    private let token: UInt

    init(to signal: Signal) throws(Errno) {
        var token: UInt = 0
        counter = try SystemCall.make { reactor_signal_subscribe(signal.rawValue, &token) }
        owner = DescriptorOwner(of: counter)
        (self.signal, self.token) = (signal, token)
    }

    deinit {
        owner.release(counter)
        reactor_signal_unsubscribe(token)
    }

    func catchSignal() { reactor_signal_catch(token) }

    /// Catches the signal no more, from now on. Any thread.
    ///
    /// - Returns: How often it was caught and not served.
    func stop() -> UInt64 {
        reactor_signal_stop(token)
        return takeCount(ofEventCounter: counter)
    }
}
