import Glibc
import Synchronization
public import SystemPackage

/// Calls a closure on a run loop's thread when tasks of the system lose time for lack of memory, processors or storage: the
/// kernel's pressure stall information (PSI).
///
/// ```swift
/// let pressure = try PressureSource(
///     at: "/proc/pressure/memory", stalledFor: .milliseconds(150), within: .seconds(2)
/// ) { _, event in
///     if event == .stalled { cache.removeAll() }
/// }
/// try RunLoop.current.add(pressure, forMode: .common)
/// ```
///
/// Stalls are reported at most once in each window. The closure is called and released on the loop's thread, and may capture
/// anything. The loop retains the source until it is cancelled. A source and its loop belong to one thread; while it is in a
/// loop, every method traps on another. In async code, use ``RunLoop/pressure(at:stalledFor:within:byAll:inModes:)``.
///
/// The kernel needs `CONFIG_PSI`, and `psi=1` among its parameters if it is off by default.
public final class PressureSource: EventSource {
    /// Why the closure is called.
    @nonexhaustive public enum Event: Sendable, Hashable {
        /// Tasks have lost so much time within a window.
        case stalled
        /// The kernel has stopped watching. The source is cancelled when the closure returns.
        case errorOccurred(IOError)
    }

    private let path: FilePath
    private var handler: ((PressureSource, Event) -> Void)?
    private var monitor: PressureMonitor?

    /// Begins to watch the system.
    ///
    /// - Parameters:
    ///   - path: The kernel's file: `/proc/pressure/memory`, `cpu` or `io` for the system, or one of a cgroup, such as
    ///     `memory.pressure`.
    ///   - stall: How much time must be lost within a window.
    ///   - window: The window: 500 ms to 10 s, and without the capability `CAP_SYS_RESOURCE` a multiple of 2 s.
    ///   - byAll: Whether only time counts in which all tasks that had something to do were stalled (`full`), and not that
    ///     in which at least one was (`some`).
    ///   - handler: Called with the source and what has happened.
    /// - Throws: ``IOError`` that names the file: with `Errno.noSuchFileOrDirectory` or `Errno.notSupported` if the kernel has
    ///   no PSI, `Errno.invalidArgument` for a window that it refuses, `Errno.permissionDenied`.
    public init(
        at path: FilePath, stalledFor stall: Duration, within window: Duration, byAll: Bool = false,
        handler: @escaping (PressureSource, Event) -> Void
    ) throws(IOError) {
        let trigger = "\(byAll ? "full" : "some") \(stall.wholeMicroseconds) \(window.wholeMicroseconds)"
        let monitor = try attempt(.watch, path.string) { () throws(Errno) in
            try PressureMonitor(path, trigger)
        }
        (self.path, self.monitor, self.handler) = (path, monitor, handler)
        super.init(monitor.counter.number, for: .readable)
    }

    deinit { monitor?.stop() }

    override var summary: String { "\(path)\(isValid ? "" : " (cancelled)")" }

    override var subject: String { path.string }

    override var silence: String { "tasks have not stalled for that long" }

    override func serve(_ readiness: Readiness) -> Bool {
        guard takeCount(ofEventCounter: number) > 0 else { return false }
        let failure = monitor?.failure
        handler?(self, failure.map { .errorOccurred(IOError(.watch, path.string, $0)) } ?? .stalled)
        if failure != nil { cancel() }
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
