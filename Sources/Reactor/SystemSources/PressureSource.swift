import Glibc
import Synchronization
import SystemPackage

/// Calls a closure on a run loop's thread when tasks of the system lose time for lack of memory, processors or storage: the
/// kernel's pressure stall information (PSI).
///
/// ```swift
/// let pressure = try PressureSource(.memory, stalledFor: .milliseconds(150), within: .seconds(1)) { _, event in
///     if event == .stalled { cache.removeAll() }
/// }
/// try RunLoop.current.add(pressure, forMode: .common)
/// ```
///
/// Stalls are reported at most once in each window. The closure is called and released on the loop's thread, and may capture
/// anything. The loop retains the source until it is closed. A source and its loop belong to one thread; while it is in a
/// loop, every method traps on another. In async code, use ``RunLoop/pressure(on:of:stalledFor:within:inModes:)``.
///
/// The kernel needs `CONFIG_PSI`, and `psi=1` among its parameters if it is off by default.
public final class PressureSource: EventSource {
    /// What is short. The raw value is the kernel's name of it, and of its file in /proc/pressure.
    @nonexhaustive public enum Resource: String, Sendable {
        /// Memory: tasks reclaim it, or read pages again that were dropped.
        case memory
        /// The processor: tasks could run, and wait.
        case cpu
        /// Storage: tasks wait for it.
        case io
    }

    /// Whose time counts. The raw value is the kernel's word.
    public enum Share: String, Sendable {
        /// Time in which at least one task was stalled.
        case some
        /// Time in which all tasks that had something to do were stalled.
        case full
    }

    /// What has happened.
    @nonexhaustive public enum Event: Sendable, Hashable {
        /// Tasks have lost the given time.
        case stalled
        /// The kernel has stopped watching. The source is closed when the closure returns.
        case errorOccurred(IOError)
    }

    /// What is watched.
    public let resource: Resource
    private var handler: ((PressureSource, Event) -> Void)?
    private var monitor: PressureMonitor?

    /// Begins to watch the system.
    ///
    /// - Parameters:
    ///   - resource: What to watch.
    ///   - share: Whose time counts.
    ///   - stall: How much time must be lost within a window.
    ///   - window: The window: 500 ms to 10 s, and without the capability `CAP_SYS_RESOURCE` a multiple of 2 s.
    ///   - handler: Called with the source and what has happened.
    /// - Throws: ``IOError`` that names the file: with `Errno.noSuchFileOrDirectory` or `Errno.notSupported` if the kernel has
    ///   no PSI, `Errno.invalidArgument` for a window that it refuses, `Errno.permissionDenied`.
    public init(
        _ resource: Resource, of share: Share = .some, stalledFor stall: Duration, within window: Duration,
        handler: @escaping (PressureSource, Event) -> Void
    ) throws(IOError) {
        let trigger = "\(share.rawValue) \(stall.wholeMicroseconds) \(window.wholeMicroseconds)"
        let monitor = try attempt(.watch, "/proc/pressure/\(resource.rawValue)") { () throws(Errno) in
            try PressureMonitor(FilePath("/proc/pressure/\(resource.rawValue)"), trigger)
        }
        (self.resource, self.monitor, self.handler) = (resource, monitor, handler)
        super.init(monitor.counter.number, for: .readable)
    }

    deinit { monitor?.stop() }

    override var summary: String { "\(resource) pressure\(isValid ? "" : " (cancelled)")" }

    override var noun: String { "source of \(resource) pressure" }

    override var silence: String { "tasks have not stalled for that long" }

    override func serve(_ readiness: Readiness) -> Bool {
        guard takeCount(ofEventCounter: number) > 0 else { return false }
        if let failure = monitor?.failure {
            handler?(self, .errorOccurred(IOError(.watch, "/proc/pressure/\(resource.rawValue)", failure)))
            cancel()
        } else {
            handler?(self, .stalled)
        }
        return true
    }

    override func releaseResources() {
        monitor.take()?.stop()
        withExtendedLifetime(handler.take()) {}
    }
}

/// A thread that waits for a trigger of the kernel, and counts in an event counter.
///
/// The kernel reports a trigger once, to the first that asks, as a priority event: an epoll in an epoll, as a hosted loop has,
/// would lose it.
private final class PressureMonitor: Sendable {
    let counter: OwnedDescriptor
    private let file: OwnedDescriptor
    private let waiting = DescriptorWait()
    private let process = ProcessIdentity.current
    /// errno; 0 while the thread watches.
    private let error = Atomic<CInt>(0)

    init(_ path: FilePath, _ trigger: String) throws(Errno) {
        let file = OwnedDescriptor(try SystemCall.open(path, O_RDWR | O_NONBLOCK))
        let counter = try OwnedDescriptor.eventCounter()
        _ = try Array("\(trigger)\0".utf8).withBytes { (bytes) throws(Errno) in
            try SystemCall.write(bytes, to: file.number)
        }
        self.file = consume file
        self.counter = consume counter
        _ = try JoinableThread(name: "reactor.pressure") { [self] in run() }
    }

    /// Why the thread has ended by itself; nil if it has not.
    var failure: Errno? {
        let error = error.load(ordering: .acquiring)
        return error == 0 ? nil : Errno(rawValue: error)
    }

    /// Ends the thread, which closes the descriptors. A child of fork(2) has no such thread, and its counter is the
    /// parent's.
    func stop() { if process.isCurrent { waiting.end() } }

    private func run() {
        do throws(Errno) { try watch() } catch {
            self.error.store(error.rawValue, ordering: .releasing)
            addOne(toEventCounter: counter.number)
        }
    }

    /// Counts until ``stop()``.
    private func watch() throws(Errno) {
        while try waiting.wait(for: CInt(POLLPRI), of: file.number) {
            // The wait has taken the event; an error stays. Then the trigger is gone.
            let events = try SystemCall.poll(file.number, for: CInt(POLLPRI))
            guard events & CInt(POLLERR) == 0 else { throw Errno(rawValue: ENODEV) }
            addOne(toEventCounter: counter.number)
        }
    }
}

extension Duration {
    /// This duration in microseconds, rounded up.
    fileprivate var wholeMicroseconds: Int64 {
        let (whole, rest) = wholeNanoseconds.quotientAndRemainder(dividingBy: 1_000)
        return rest > 0 ? whole + 1 : whole
    }
}
