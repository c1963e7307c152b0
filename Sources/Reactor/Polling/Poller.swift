import CLibevent
import CReactorLinux
import Glibc
import SystemPackage

/// One libevent base: waits for descriptors, an alarm and a wake-up, and records what became ready.
///
/// It never calls user code, so it is never entered twice (`event_base_loop` is not re-entrant). Only the
/// thread of the run loop that owns it may use it.
///
/// A handle: whoever makes it frees it, after the watches that are on it. Not a class, because every pass would
/// count references to it.
@safe
struct Poller {
    @unsafe private struct Contents: ~Copyable {
        let base: OpaquePointer
        var ready = ReadyQueue()
        var hasLeftovers = false
        let number: Int32
        /// The loop's, shared with its other pollers.
        let waker: Waker
        let forks = Fork.count
        var counterEvent: OpaquePointer?
        var alarmEvent: OpaquePointer?

        deinit {
            guard unsafe forks == Fork.count else { return }
            if let event = unsafe counterEvent { unsafe event_free(event) }
            if let event = unsafe alarmEvent { unsafe event_free(event) }
            unsafe event_base_free(base)
        }
    }

    private let contents: UnsafeMutablePointer<Contents>

    init(number: Int32, waker: Waker) throws(Errno) {
        listenToLibevent
        let base = try unsafe Self.makeBase()
        unsafe contents = .allocate(capacity: 1)
        unsafe contents.initialize(to: Contents(base: base, number: number, waker: waker))
        do throws(Errno) { try watchOwn() } catch {
            free()
            throw error
        }
    }

    /// Ends what this and all its copies stand for.
    func free() {
        unsafe contents.deinitialize(count: 1)
        unsafe contents.deallocate()
    }

    /// What its owner knows it by.
    var number: Int32 { unsafe contents.pointee.number }

    /// Whether it was made before the process was forked, and so is the parent's. The child has the same epoll: what it
    /// changed there would change in the parent.
    var isOfParent: Bool { unsafe contents.pointee.forks != Fork.count }

    /// Gets ready for a wait, and returns the event counter (eventfd(2)) that ends it when one is added to it.
    @inline(__always)
    func prepareToWait() -> CInt {
        let waker = unsafe contents.pointee.waker
        waker.prepare(for: number)
        return waker.counter
    }

    /// What became ready and has not been served yet.
    var ready: ReadyQueue {
        @inline(always) _read { yield unsafe contents.pointee.ready }
        @inline(always) nonmutating _modify { yield unsafe &contents.pointee.ready }
    }

    /// Whether an activation has ended before it had served all that the kernel had told.
    var hasLeftovers: Bool {
        get { unsafe contents.pointee.hasLeftovers }
        nonmutating set { unsafe contents.pointee.hasLeftovers = newValue }
    }

    func isSame(as other: Poller) -> Bool { unsafe contents == other.contents }

    /// Asks the kernel once, waiting until `time` at the latest, and records what is ready. It does not wait for
    /// `.min`, and without end for `.max`.
    @inline(always)
    func poll(until time: Int64) {
        if time == .min { return loop(EVLOOP_ONCE | EVLOOP_NONBLOCK) }
        unsafe contents.pointee.waker.setAlarm(time)
        loop(EVLOOP_ONCE)
    }

    @inline(__always)
    private func loop(_ flags: CInt) { unsafe event_base_loop(contents.pointee.base, flags) }
}

// MARK: - Events

extension Poller {
    /// How many bytes an event takes, which the libevent that is loaded says.
    static let eventSize = event_get_struct_event_size()

    /// Registers `descriptor` by an event in `memory`, or in memory of its own when that is nil. The caller ends
    /// it before the poller ends.
    func register(
        _ descriptor: CInt, _ kind: CInt, _ callback: event_callback_fn, context: UnsafeMutableRawPointer,
        in memory: OpaquePointer? = nil
    ) throws(Errno) -> OpaquePointer {
        if isOfParent { Fork.refuse() }
        let (base, kind) = unsafe (contents.pointee.base, Int16(kind | EV_PERSIST))
        var event = unsafe memory
        if let memory = unsafe memory {
            unsafe event_assign(memory, base, descriptor, kind, callback, context)
        } else {
            unsafe event = event_new(base, descriptor, kind, callback, context)
        }
        guard let event = unsafe event else { throw .noMemory }
        guard unsafe event_add(event, nil) == 0 else {
            let code = errno
            if unsafe memory == nil { unsafe event_free(event) } else { unsafe event_debug_unassign(event) }
            throw Errno(rawValue: code)
        }
        return unsafe event
    }

    /// Edge-triggered: neither the counter nor the alarm has to be read to be quiet again.
    private func watchOwn() throws(Errno) {
        let kind = EV_READ | EV_ET
        unsafe contents.pointee.counterEvent = try unsafe register(
            contents.pointee.waker.counter, kind, ignoreReadiness, context: contents)
        unsafe contents.pointee.alarmEvent = try unsafe register(
            contents.pointee.waker.alarm, kind, noteAlarm, context: contents)
    }

    private static func makeBase() throws(Errno) -> OpaquePointer {
        guard let configuration = unsafe event_config_new() else { throw .noMemory }
        defer { unsafe event_config_free(configuration) }
        // No cached time: libevent has no timers here, and would ask for the time in every pass.
        let flags =
            EVENT_BASE_FLAG_NOLOCK.rawValue | EVENT_BASE_FLAG_IGNORE_ENV.rawValue
            | EVENT_BASE_FLAG_NO_CACHE_TIME.rawValue
        unsafe event_config_set_flag(configuration, CInt(flags))
        unsafe event_config_require_features(
            configuration, CInt(EV_FEATURE_ET.rawValue | EV_FEATURE_O1.rawValue))
        // Only the address leaves the lock: what is behind it belongs to this thread.
        let address = try makingBase.withLock { _ throws(Errno) in
            // Just before, as other threads take descriptors too.
            try SystemCall.make { reactor_descriptors_for_poller() }
            return unsafe UInt(bitPattern: event_base_new_with_config(configuration))
        }
        guard let base = unsafe OpaquePointer(bitPattern: address) else { throw .noMemory }
        return unsafe base
    }

    /// Held while a base is made, so that two loops do not count on the same descriptors.
    private static let makingBase = Mutex(())

    /// What libevent hands back.
    fileprivate init(_ context: UnsafeMutableRawPointer) {
        unsafe contents = context.assumingMemoryBound(to: Contents.self)
    }

    fileprivate func alarmRang() { unsafe contents.pointee.waker.alarmRang() }
}

private func ignoreReadiness(_: CInt, _: Int16, _: UnsafeMutableRawPointer?) {}

private func noteAlarm(_: CInt, _: Int16, _ context: UnsafeMutableRawPointer?) {
    if let context = unsafe context { unsafe Poller(context).alarmRang() }
}

/// libevent would print a refused descriptor to standard error; here it is an error of the call that asked. After a message
/// of error severity libevent exits, so this traps first.
private let listenToLibevent: Void = unsafe event_set_log_callback { severity, message in
    guard severity == EVENT_LOG_ERR else { return }
    fatalError(
        "libevent failed: \(unsafe message.map { unsafe String(cString: $0) } ?? "no message")")
}
