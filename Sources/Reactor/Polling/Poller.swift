import CReactorLibevent
import CReactorLinux
import Glibc
import SystemPackage

/// One libevent base: waits for descriptors, a timer and a wake-up, and records what became ready.
///
/// It never calls the client's code, so it is never re-entered, as `event_base_loop` must not be. Confined to
/// the thread of the run loop that owns it.
final class Poller {
    private let base: EventBase
    /// Shared with the loop's other pollers.
    private let waker: Waker
    /// Distinguishes the loop's pollers.
    private let number: Int32
    private let counterEvent: Registration
    private let timerEvent: Registration

    /// The last time that this poller has asked the kernel, or does so now.
    private(set) var lastPoll = Poll.unknown

    init(number: Int32, waker: Waker) throws(Errno) {
        let base = try EventBase()
        // Edge-triggered: the counter and the timer need not be read to stop being reported.
        let kind = EV_READ | EV_ET
        counterEvent = try unsafe Registration(
            of: waker.counter, kind, on: base, ignoreReadiness, context: waker)
        timerEvent = try unsafe Registration(of: waker.timer, kind, on: base, noteTimer, context: waker)
        (self.base, self.waker, self.number) = (base, waker, number)
    }

    /// Prepares a wait, and returns the event counter (eventfd(2)) that ends it when incremented.
    @inline(__always)
    func prepareToWait() -> CInt {
        waker.prepare(for: number)
        return waker.counter
    }

    /// Asks the kernel once, waiting until `time` at the latest, and records what is ready. `.min` means not
    /// to wait, `.max` to wait without a limit.
    @inline(always)
    func poll(until time: Int64) {
        let mayWait = time != .min && (waker.isSet(to: time) || setTimer(time))
        lastPoll = Poll(reactor_count_poll())
        base.loop(mayWait ? EVLOOP_ONCE : EVLOOP_ONCE | EVLOOP_NONBLOCK)
    }

    /// Sets the timer of the next wait, and returns whether there is time to wait.
    @inline(never)
    private func setTimer(_ time: Int64) -> Bool {
        guard let source = currentTimeSource else {
            waker.setTimer(time)
            return true
        }
        // Not in libevent, which would take what is ready before the time source knows of the end.
        if beginWait(until: time, source) { base.epoll.wait() }
        source.didWait()
        return false
    }

    /// Asks the time source how to wait, and returns whether there is time to wait.
    private func beginWait(until time: Int64, _ source: any TimeSource) -> Bool {
        // First, as another thread may end the wait from now on.
        waker.unsetTimer()
        let wait = LoopWait(
            for: base.descriptors.filter { $0 != waker.timer && $0 != waker.counter }, timer: waker.timer
        ) { [epoll = base.epoll] in epoll.isReady }
        let end = source.willWait(until: time, wait)
        if end != .min, end != .max { waker.setTimer(end) }
        waker.forgetTimer()
        return end != .min
    }

    /// Forgets the date of the timer, which the next wait then sets again.
    func forgetTimer() { waker.forgetTimer() }

    /// Sets the timer of a wait that another event loop makes, and returns whether there is time to wait; see ``nest(in:)``.
    func setTimerOfHost(_ time: Int64) -> Bool {
        if waker.isSet(to: time) { return true }
        if let source = currentTimeSource { return beginWait(until: time, source) }
        waker.setTimer(time)
        return true
    }

    /// Makes `outer`, an epoll(7), readable while a poll would record something.
    func nest(in outer: borrowing OwnedDescriptor) throws(Errno) { try base.epoll.nest(in: outer) }

    /// Ends ``nest(in:)``.
    func unnest(from outer: borrowing OwnedDescriptor) { base.epoll.unnest(from: outer) }

    /// Calls `callback` with `context` when `descriptor` is ready for `interest`, until the registration
    /// ends.
    ///
    /// - Parameters:
    ///   - shared: Closes the descriptor, if another thread may do that meanwhile.
    ///   - callback: Receives the descriptor, libevent's events, and the context.
    ///   - context: Outlives the registration, which it owns.
    func register(
        _ descriptor: CInt, of shared: SharedDescriptor?, for interest: Readiness,
        _ callback: event_callback_fn,
        context: AnyObject
    ) throws(Errno) -> Registration {
        if base.belongsToParent { ProcessIdentity.refuseParentsLoop() }
        let kind = interest == .readable ? EV_READ : EV_WRITE
        return try unsafe Registration(
            of: descriptor, kind, on: base, callback, context: context, shared: shared)
    }
}

/// A kernel registration. Its deinitializer deregisters.
///
/// `@safe`: the event is this value's alone, its base is retained, and ``Poller/register(_:of:for:_:context:)``
/// requires a context that outlives it.
@safe
struct Registration: ~Copyable {
    private let event: OpaquePointer
    private let base: EventBase
    private let shared: SharedDescriptor?

    /// - Parameters:
    ///   - context: Passed to `callback`. It outlives the registration, which it owns.
    ///   - shared: Deregisters the descriptor if it is closed before the registration ends.
    fileprivate init(
        of descriptor: CInt, _ kind: CInt, on base: EventBase, _ callback: event_callback_fn,
        context: AnyObject, shared: SharedDescriptor? = nil
    ) throws(Errno) {
        if let shared {
            var event: OpaquePointer?
            try shared.beginRegistration(with: base.epoll) { () throws(Errno) in
                unsafe event = try base.add(descriptor, kind, callback, context)
            }
            unsafe self.event = event.unsafelyUnwrapped
        } else {
            unsafe event = try base.add(descriptor, kind, callback, context)
        }
        self.base = base
        self.shared = shared
    }

    deinit { if !base.belongsToParent { unsafe Self.end(event, on: base, shared) } }

    private static func end(_ event: OpaquePointer, on base: EventBase, _ shared: SharedDescriptor?) {
        guard let shared else { return withoutMessages { unsafe event_free(event) } }
        let descriptor = unsafe event_get_fd(event)
        let isInKernel = shared.endRegistration(with: base.epoll) {
            withoutMessages { unsafe event_free(event) }
        }
        // Another stream or source may have registered the same borrowed descriptor.
        if !isInKernel, !shared.closesWhenDone { base.registerAgain(descriptor) }
    }
}

/// The epoll(7) of a libevent base. The base belongs to its loop's thread; any thread may use this.
final class Epoll: Sendable {
    /// -1 once it is closed.
    private let number: Mutex<CInt>
    /// libevent closes it.
    private let owner: DescriptorOwner
    private let process = ProcessIdentity.current

    fileprivate init(_ number: CInt) {
        self.number = Mutex(number)
        owner = DescriptorOwner(of: number, isLoop: true)
    }

    /// Whether an epoll accepts `descriptor`: not a regular file, a directory, or a device without poll.
    static func supports(_ descriptor: CInt) -> Bool {
        guard let probe = try? OwnedDescriptor.epoll() else {
            // Without a free descriptor: most devices have no poll.
            return isatty(descriptor) != 0 || (try? FileStatus.of(descriptor))?.fileType != S_IFCHR
        }
        do throws(Errno) {
            try SystemCall.control(probe.number, EPOLL_CTL_ADD, descriptor, for: 0)
            return true
        } catch { return error != .notPermitted }
    }

    /// Deregisters a descriptor that is about to be closed. Its number has no registration afterwards.
    ///
    /// - Returns: Whether there was one.
    @discardableResult
    func remove(_ descriptor: CInt) -> Bool {
        // A child of fork(2) shares its parent's epoll.
        process.isCurrent && number.withLock { epoll_ctl($0, EPOLL_CTL_DEL, descriptor, nil) == 0 }
    }

    func nest(in outer: borrowing OwnedDescriptor) throws(Errno) {
        let outer = outer.number
        try number.withLock { (number) throws(Errno) in
            try SystemCall.control(outer, EPOLL_CTL_ADD, number, for: EPOLLIN.rawValue)
        }
    }

    /// Whether a wait would end at once.
    var isReady: Bool { number.withLock { SystemCall.isReadable($0) } }

    /// Waits until something is ready, and leaves it to the next wait. Called on the loop's thread, which closes the epoll.
    func wait() {
        let request = pollfd(fd: number.withLock { $0 }, events: Int16(POLLIN), revents: 0)
        var requests: [1 of pollfd] = [request]
        try? SystemCall.poll(&requests, timeout: -1)
    }

    func unnest(from outer: borrowing OwnedDescriptor) {
        let outer = outer.number
        number.withLock { _ = epoll_ctl(outer, EPOLL_CTL_DEL, $0, nil) }
    }

    /// The epoll is about to be closed.
    fileprivate func end() {
        guard process.isCurrent else { return }
        owner.release(number.withLock { exchange(&$0, with: -1) })
    }
}

/// The libevent base, which outlives every registration on it.
///
/// `@safe`: the pointer is set once and freed by `deinit`, and only the thread of the loop that owns it uses it.
@safe
private final class EventBase {
    fileprivate let pointer: OpaquePointer
    fileprivate let epoll: Epoll
    private let process = ProcessIdentity.current

    /// Locked while a base is created, so that two loops do not rely on the same free descriptors.
    private static let making = Mutex(())

    init() throws(Errno) {
        listenToLibevent
        // Only the address leaves the lock: the base belongs to this thread.
        let (address, epoll) = try Self.making.withLock { _ throws(Errno) in
            // libevent ends the process if there are none for its pair of sockets. The other two are the epoll and the probe.
            try OwnedDescriptor.require(4)
            return try withoutMessages { () throws(Errno) in
                guard let base = unsafe reactor_base_make() else { throw Errno(rawValue: errno) }
                do throws(Errno) { return try unsafe (UInt(bitPattern: base), Self.epoll(of: base)) } catch {
                    unsafe event_base_free(base)
                    throw error
                }
            }
        }
        unsafe (pointer, self.epoll) = (OpaquePointer(bitPattern: address).unsafelyUnwrapped, Epoll(epoll))
    }

    /// The epoll(7), which libevent does not expose: no other one watches a new descriptor.
    private static func epoll(of base: OpaquePointer) throws(Errno) -> CInt {
        let probe = try OwnedDescriptor.eventCounter()
        let descriptor = probe.number
        var event: OpaquePointer?
        try SystemCall.make {
            unsafe reactor_event_add(base, descriptor, Int16(EV_READ), ignoreReadiness, nil, &event)
        }
        defer { unsafe event_free(event) }
        let limit = CInt(clamping: sysconf(CInt(_SC_OPEN_MAX)))
        for number in 0..<limit where epoll_ctl(number, EPOLL_CTL_DEL, descriptor, nil) == 0 {
            return number
        }
        throw .notSupported
    }

    deinit {
        epoll.end()
        if !belongsToParent { unsafe event_base_free(pointer) }
    }

    func add(
        _ descriptor: CInt, _ kind: CInt, _ callback: event_callback_fn, _ context: AnyObject
    ) throws(Errno) -> OpaquePointer {
        let context = CallbackContext.address(of: context)
        var event: OpaquePointer?
        try SystemCall.make {
            withoutMessages {
                unsafe reactor_event_add(pointer, descriptor, Int16(kind), callback, context, &event)
            }
        }
        return unsafe event.unsafelyUnwrapped
    }

    /// The descriptors that are watched.
    var descriptors: [CInt] { events.map(\.descriptor) }

    private var events: [Event] {
        var found: [Event] = []
        unsafe withUnsafeMutablePointer(to: &found) { found in
            let collect: event_base_foreach_event_cb = { _, event, found in
                unsafe found!.assumingMemoryBound(to: [Event].self).pointee.append(Event(pointer: event!))
                return 0
            }
            _ = unsafe event_base_foreach_event(pointer, collect, found)
        }
        return found
    }

    /// `@safe`: an event of the base, which is freed on the base's thread only.
    @safe
    private struct Event {
        let pointer: OpaquePointer

        var descriptor: CInt { unsafe event_get_fd(pointer) }
    }

    /// Whether it was created before the process was forked. The child shares the parent's epoll, so a change
    /// here would be one in the parent.
    var belongsToParent: Bool { !process.isCurrent }

    /// Registers a descriptor with the kernel again, for the registrations that are left of it, after
    /// ``Epoll/remove(_:)``.
    func registerAgain(_ descriptor: CInt) {
        let events = events.filter { $0.descriptor == descriptor }
        withoutMessages {
            // libevent tells the kernel only of the first and the last event of a kind.
            for event in events { unsafe event_del(event.pointer) }
            for event in events { unsafe event_add(event.pointer, nil) }
        }
    }

    @inline(__always)
    func loop(_ flags: CInt) {
        if unsafe event_base_loop(pointer, flags) < 0 { Self.refuse() }
    }

    /// Polling again would return at once, again and again.
    private static func refuse() -> Never {
        refuseClosedDescriptor("event_base_loop", Errno(rawValue: errno))
    }
}

// MARK: - libevent's callbacks: they record, and leave the dispatch to the loop

private func noteTimer(_: CInt, _: Int16, _ context: UnsafeMutableRawPointer?) {
    unsafe CallbackContext.object(context, as: Waker.self).timerFired()
}

private func ignoreReadiness(_: CInt, _: Int16, _: UnsafeMutableRawPointer?) {}

/// Makes a call of libevent whose result tells whether it has failed: without its message.
private func withoutMessages<Result, Failure: Error>(_ call: () throws(Failure) -> Result) throws(Failure)
    -> Result
{
    reactor_capture_messages(true)
    defer { reactor_capture_messages(false) }
    return try call()
}

/// libevent has one callback for all its messages in the process, and no way to read it: this replaces one that other code
/// has set.
private let listenToLibevent: Void = unsafe event_set_log_callback(reactor_note_message)
