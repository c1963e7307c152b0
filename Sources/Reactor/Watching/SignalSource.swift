import CReactorLinux
import Glibc
public import SystemPackage

/// Calls a closure on a run loop's thread when the process receives a POSIX signal.
///
/// Any number of sources, on any number of loops, may want the same signal: each is called. While there is
/// one, the signal's own action (for SIGINT: to end the process) does not happen; when the last is cancelled,
/// the earlier action is restored. Deliveries that come in faster than the loop goes round
/// are counted and handed over together.
///
/// Making a source, and adding one to a mode, catches the signal whatever its disposition was, `SIG_IGN` too. Other code
/// that changes the disposition after that takes the signal away from all sources, until one is made or added again; the
/// disposition that it has set is then the earlier action that is restored. A child of fork(2) has the earlier actions,
/// and sources of its own only.
///
/// A source and its loop belong to one thread; every method traps on another. It stands on sigaction(2) with
/// `SA_RESTART` and an eventfd(2): the signal need not be blocked, and any thread may receive it. A signal that all threads
/// block is not delivered to sources either.
///
/// ```swift
/// let interrupt = try SignalSource(SIGINT) { source, _ in
///     print("stopping")
///     source.cancel()
/// }
/// try RunLoop.main.add(interrupt, forMode: .common)
/// ```
public final class SignalSource: EventSource {
    /// The signal's number.
    public let signal: CInt

    private var subscription: Subscription?
    private var handler: ((SignalSource, Int) -> Void)?

    /// Begins to catch `signal`; deliveries are kept until the source is in a loop.
    ///
    /// - Parameters:
    ///   - signal: A signal's number, such as `SIGINT`.
    ///   - handler: Called with the source and how many deliveries there have been since the last call, at
    ///     least one.
    /// - Throws: `Errno.invalidArgument` for a signal that cannot be caught (SIGKILL, SIGSTOP) or that
    ///   reports a fault of the program itself (SIGSEGV and its like); `Errno.tooManyOpenFiles` if no eventfd
    ///   can be made.
    public init(_ signal: CInt, handler: @escaping (SignalSource, _ deliveries: Int) -> Void) throws(Errno) {
        let subscription = try Subscription(to: signal)
        let counter = subscription.counter
        self.signal = signal
        self.subscription = consume subscription
        self.handler = handler
        super.init(counter, for: .readable)
    }

    /// The signal's number.
    public override var description: String { "signal \(signal)\(isValid ? "" : " (cancelled)")" }

    /// Takes the source out of its loop for good, releases its closure and stops catching the signal for
    /// it.
    ///
    /// The signal's own action is back when this returns, so a handler that has cancelled its source can send
    /// the signal again to have that happen.
    public func cancel() {
        end()
        subscription = nil
    }

    override func serve(_ readiness: Readiness) {
        let count = takeCount(ofEventCounter: number)
        if count > 0, let handler { handler(self, Int(clamping: count)) }
    }

    /// Has the signal caught, whatever other code has done with it meanwhile.
    override func joined(_ mode: RunLoop.Mode) { subscription?.catchSignal() }

    override func ended() {
        subscription = nil
        let dropped = handler.take()
        withExtendedLifetime(dropped) {}
    }
}

/// A signal that is caught, and counted in an eventfd(2). Its end restores the earlier action, if it is the last.
@safe
private struct Subscription: ~Copyable {
    let counter: CInt
    private let token: UnsafeMutableRawPointer

    init(to signal: CInt) throws(Errno) {
        var token: UnsafeMutableRawPointer?
        counter = try SystemCall.make { unsafe reactor_signal_subscribe(signal, &token) }
        unsafe self.token = token.unsafelyUnwrapped
    }

    deinit { unsafe reactor_signal_unsubscribe(token) }

    func catchSignal() { unsafe reactor_signal_catch(token) }
}
