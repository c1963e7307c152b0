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
@safe
public final class SignalSource {
    /// The signal's number.
    public let signal: CInt

    fileprivate let source: DescriptorSource
    /// Belongs to the descriptor source's closure: whatever ends that one, even the loop's end, ends the
    /// subscription and lets go of the handler.
    fileprivate private(set) weak var relay: Relay?

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
        let relay = try Relay(signal, handler: handler)
        self.signal = signal
        self.relay = relay
        source = DescriptorSource(relay.descriptor, for: .readable) { _, _ in relay.deliver() }
    }

    /// Whether the source can still call its handler.
    public var isValid: Bool { source.isValid }

    /// Takes the source out of its loop for good, lets go of its closure and stops catching the signal for
    /// it.
    ///
    /// The signal's own action is back when this returns, so a handler that has cancelled its source can send
    /// the signal again to have that happen.
    public func cancel() {
        let relay = relay
        source.cancel()
        relay?.end()
    }
}

/// A subscription to a signal with its handler, and the signal source itself for as long as it is in a loop.
@safe
private final class Relay {
    let descriptor: FileDescriptor
    private let handler: (SignalSource, Int) -> Void
    private var token: UnsafeMutableRawPointer?
    /// Set while the source is in a loop, which is what keeps it alive then.
    var source: SignalSource?

    init(_ signal: CInt, handler: @escaping (SignalSource, Int) -> Void) throws(Errno) {
        var token: UnsafeMutableRawPointer?
        let number = try SystemCall.make { unsafe reactor_signal_subscribe(signal, &token) }
        descriptor = FileDescriptor(rawValue: number)
        unsafe self.token = unsafe token
        self.handler = handler
    }

    deinit { end() }

    func deliver() {
        var count: UInt64 = 0
        let size = unsafe read(descriptor.rawValue, &count, MemoryLayout<UInt64>.size)
        guard size > 0, let source else { return }
        handler(source, Int(clamping: count))
    }

    /// Has the signal caught, whatever other code has done with it meanwhile.
    func catchSignal() {
        if let token = unsafe token { unsafe reactor_signal_catch(token) }
    }

    func end() {
        source = nil
        guard let token = unsafe token else { return }
        unsafe reactor_signal_unsubscribe(token)
        unsafe self.token = nil
    }
}

extension RunLoop {
    /// Has `source` served in `mode`. Does nothing if it is cancelled, another loop's, or in the mode
    /// already.
    ///
    /// - Throws: What epoll_ctl(2) does, such as `Errno.noMemory`.
    /// - Precondition: Called on the loop's thread.
    public func add(_ source: SignalSource, forMode mode: Mode) throws(Errno) {
        try add(source.source, forMode: mode)
        guard source.source.loop === self else { return }
        source.relay?.source = source
        source.relay?.catchSignal()
    }

    /// Takes `source` out of `mode`, without cancelling it: deliveries are kept for when it is added again.
    ///
    /// - Precondition: Called on the loop's thread.
    public func remove(_ source: SignalSource, forMode mode: Mode) {
        remove(source.source, forMode: mode)
        if source.source.loop == nil { source.relay?.source = nil }
    }

    /// Whether `source` is in `mode` of this loop.
    ///
    /// - Precondition: Called on the loop's thread.
    public func contains(_ source: SignalSource, forMode mode: Mode) -> Bool {
        contains(source.source, forMode: mode)
    }
}
