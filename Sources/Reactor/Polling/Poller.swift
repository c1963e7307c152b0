import CLibevent
import CReactorLinux
import Glibc
import SystemPackage

/// One libevent base: waits for descriptors, an alarm and a wake-up, and records what became ready.
///
/// It never calls user code, so it is never entered twice (`event_base_loop` is not re-entrant). Only the
/// thread of the run loop that owns it may use it, except for writing `wakeUpCounter`.
@safe
final class Poller {
    /// How long a poll may wait.
    enum Patience: Equatable {
        case none
        case until(Int64)
        case forever
    }

    /// What became ready and has not been served yet.
    var ready = ReadyQueue()
    /// Whether an activation has ended before it had served all that the kernel had told.
    var hasLeftovers = false
    /// What its owner knows it by.
    let number: Int32
    private let base: OpaquePointer
    private let counter: OwnedDescriptor
    private let alarm: OwnedDescriptor
    private var counterEvent: OpaquePointer?
    private var alarmEvent: OpaquePointer?
    /// When the alarm is set for; nil when it is not, or has rung.
    private var alarmTime: Int64?

    init(number: Int32) throws(Errno) {
        self.number = number
        silenceLibevent
        guard let configuration = unsafe event_config_new() else { throw .noMemory }
        defer { unsafe event_config_free(configuration) }
        // No cached time: libevent has no timers here, and would ask for the time in every pass.
        let flags =
            EVENT_BASE_FLAG_NOLOCK.rawValue | EVENT_BASE_FLAG_IGNORE_ENV.rawValue
            | EVENT_BASE_FLAG_NO_CACHE_TIME.rawValue
        unsafe event_config_set_flag(configuration, CInt(flags))
        unsafe event_config_require_features(
            configuration, CInt(EV_FEATURE_ET.rawValue | EV_FEATURE_O1.rawValue))
        let counter = try OwnedDescriptor.eventCounter()
        let alarm = try OwnedDescriptor.alarm()
        guard let base = unsafe event_base_new_with_config(configuration) else { throw .noMemory }
        unsafe self.base = base
        self.counter = counter
        self.alarm = alarm
        unsafe counterEvent = try unsafe watchOwn(self.counter.number, ignoreReadiness)
        unsafe alarmEvent = try unsafe watchOwn(self.alarm.number, noteAlarm)
    }

    deinit {
        if let event = unsafe counterEvent { unsafe event_free(event) }
        if let event = unsafe alarmEvent { unsafe event_free(event) }
        unsafe event_base_free(base)
    }

    /// The event counter (eventfd(2)) that ends a wait of this poller when one is added to it.
    var wakeUpCounter: CInt { counter.number }

    /// Asks the kernel once, waiting as long as `patience` allows, and records what is ready.
    func poll(_ patience: Patience) {
        if case .until(let time) = patience { setAlarm(time) } else if patience == .forever { setAlarm(nil) }
        let flags = patience == .none ? EVLOOP_ONCE | EVLOOP_NONBLOCK : EVLOOP_ONCE
        unsafe event_base_loop(base, flags)
    }

    /// Registers `descriptor`; the caller owns the event and frees it before the poller ends.
    func register(
        _ descriptor: CInt, _ events: CInt, _ callback: event_callback_fn,
        context: UnsafeMutableRawPointer
    ) throws(Errno) -> OpaquePointer {
        guard let event = unsafe event_new(base, descriptor, Int16(events), callback, context) else {
            throw .noMemory
        }
        guard unsafe event_add(event, nil) == 0 else {
            let code = errno
            unsafe event_free(event)
            throw Errno(rawValue: code)
        }
        return unsafe event
    }

    fileprivate func alarmRang() { alarmTime = nil }

    /// Arming is dear on virtual machines (from 0.6 to 15 µs), so it happens only when the time is another.
    private func setAlarm(_ time: Int64?) {
        guard time != alarmTime else { return }
        alarmTime = time
        _ = reactor_timerfd_arm(alarm.number, max(time ?? 0, time == nil ? 0 : 1))
    }

    /// Edge-triggered: neither a counter nor an alarm has to be read to be quiet again.
    private func watchOwn(
        _ descriptor: CInt, _ callback: event_callback_fn
    ) throws(Errno) -> OpaquePointer {
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        return try unsafe register(descriptor, EV_READ | EV_PERSIST | EV_ET, callback, context: context)
    }
}

private func ignoreReadiness(_: CInt, _: Int16, _: UnsafeMutableRawPointer?) {}

private func noteAlarm(_: CInt, _: Int16, _ context: UnsafeMutableRawPointer?) {
    guard let context = unsafe context else { return }
    unsafe Unmanaged<Poller>.fromOpaque(context).takeUnretainedValue().alarmRang()
}

/// libevent would print a refused descriptor to standard error; here it is an error of the call that asked.
private let silenceLibevent: Void = unsafe event_set_log_callback { _, _ in }
