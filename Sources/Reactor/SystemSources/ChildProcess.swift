import CReactorLinux
import Dispatch
import Glibc
import SystemPackage

/// A process that this one has spawned: its identity, its signals and its end.
///
/// ```swift
/// let child = try ChildProcess.spawn(.init("ls", ["-l"], standardOutput: .stream))
/// for try await line in child.standardOutput!.lines { print(line) }
/// let termination = try await RunLoop.main.termination(of: child.process)
/// ```
///
/// Any thread may use it. To learn of the end, use a ``ProcessSource`` on a run loop,
/// ``RunLoop/termination(of:timeout:inModes:)`` in async code, and ``wait(until:)`` elsewhere.
///
/// A pidfd identifies the process from its beginning (clone(2), `CLONE_PIDFD`), so a signal never reaches another process with
/// the same number. The library installs no handler for SIGCHLD, and waits only for the children that it has spawned, not for
/// those of Foundation's `Process` and other libraries. A process that has ended is collected when the program asks how it
/// ended. Releasing the last reference does not end the process; the library collects it in the background when it ends.
///
/// If this process ends first, the child continues: it reads the end of its input if that is a pipe from this process, its
/// output to a pipe fails with EPIPE, and with a terminal it gets SIGHUP. See ``Configuration/parentDeathSignal``.
///
/// Needs Linux 5.4.
public final class ChildProcess: Sendable {
    /// The process's number (pid). Another process may have it once ``termination`` is not nil.
    public let processIdentifier: Int32
    /// The program's name, for a message.
    let name: String
    /// The pidfd.
    let descriptor: CInt
    private let owner: DescriptorOwner
    /// The master of its terminal, if it has one.
    private let terminal: SharedDescriptor?
    private let state = Mutex(State())
    private let creator = ProcessIdentity.current

    private struct State {
        /// How it has ended, once that is known.
        var termination: Termination?
        /// Whether the kernel has forgotten it, and may give its number to another process.
        var isCollected = false
        /// How many users need its number, after its end, too.
        var numberUsers = 0
    }

    init(_ spawned: reactor_spawned, _ name: String, terminal: SharedDescriptor?) {
        (processIdentifier, descriptor) = (spawned.process, spawned.descriptor)
        owner = DescriptorOwner(of: spawned.descriptor)
        (self.name, self.terminal) = (name, terminal)
        // Also while only a stream of the process is kept.
        currentTimeSource?.noteWork { [self] in !SystemCall.isReadable(descriptor) }
    }

    deinit {
        let hasEnded = termination != nil
        // In a child of fork(2) the process is a sibling, which its parent collects.
        if hasEnded || !creator.isCurrent { return owner.close(descriptor) }
        owner.release(descriptor)
        Collector.add(descriptor)
    }

    // MARK: Its end

    /// How the process has ended; nil while it runs.
    public var termination: Termination? {
        state.withLock { state in
            if state.termination == nil {
                let keepsNumber = state.numberUsers > 0
                state.termination = Termination(collecting: descriptor, keepsNumber: keepsNumber)
                state.isCollected = state.termination != nil && !keepsNumber
            }
            return state.termination
        }
    }

    /// Keeps the process's number, and that of the group that it leads, from other processes, also after its end.
    func beginUsingNumber() { state.withLock { $0.numberUsers += 1 } }

    func endUsingNumber() {
        state.withLock { state in
            state.numberUsers -= 1
            guard state.numberUsers == 0, state.termination != nil, !state.isCollected else { return }
            _ = Termination(collecting: descriptor)
            state.isCollected = true
        }
    }

    /// Blocks the thread until the process has ended.
    ///
    /// A process whose output is a stream that no code reads does not end once the pipe is full.
    ///
    /// - Returns: How it has ended; nil if it still runs at `deadline`.
    @available(*, noasync, message: "await RunLoop.termination(of:)")
    public func wait(until deadline: Deadline = .distantFuture) -> Termination? {
        RunLoop.noteWait("in ChildProcess.wait, waiting for process \(processIdentifier) (\(name))") {
            collect(until: deadline)
        }
    }

    private func collect(until deadline: Deadline) -> Termination? {
        var pauses = ChildProcess.pausesOfCollecting
        while true {
            if let termination { return termination }
            let rest = Deadline.now.duration(to: deadline)
            guard rest > .zero else { return nil }
            var request = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            // Again after a signal, and for longer than poll(2) can wait.
            let timeout = deadline == .distantFuture ? -1 : rest.wholeMilliseconds
            guard unsafe poll(&request, 1, timeout) > 0, termination == nil else { continue }
            poll(nil, 0, min(pauses.nextBound(), rest).wholeMilliseconds)
        }
    }

    // MARK: Signals

    /// Sends `signal` to the process, or to the group that it leads.
    ///
    /// - Parameters:
    ///   - signal: The signal.
    ///   - toGroup: Whether all processes of its group get the signal: see ``Configuration/Group``.
    /// - Throws: ``IOError`` with an error of pidfd_send_signal(2) or kill(2): `Errno.noSuchProcess` after the process was
    ///   collected, or if nothing is left of its group; `Errno.notPermitted`, `Errno.invalidArgument`.
    /// - Note: Before Linux 6.9 the group is identified by its number. Then it gets no signal once the process was collected;
    ///   do not let other code collect it during the call, by a wait for any child, as another group might get the number.
    public func send(_ signal: Signal, toGroup: Bool = false) throws(IOError) {
        try attempt(.signal, subject) { () throws(Errno) in
            guard toGroup else {
                try SystemCall.make { reactor_signal_process(descriptor, signal.rawValue) }
                return
            }
            // A process that is not collected keeps its number: it is not while this is locked.
            _ = try state.withLock { _ throws(Errno) in
                try SystemCall.make { reactor_signal_group(descriptor, processIdentifier, signal.rawValue) }
            }
        }
    }

    /// Sends SIGTERM, and SIGKILL to what is left when `grace` has passed, also if this object was released. Does not wait.
    ///
    /// The group includes the programs that the process has started, also those that have outlived it; before Linux 6.9 only if
    /// ``termination`` is not known yet. A process that ends meanwhile keeps its number until the grace is over. Without a
    /// group this does nothing if ``termination`` is known.
    ///
    /// - Parameters:
    ///   - grace: The time between the signals.
    ///   - group: Whether the whole group that the process leads is ended: see ``Configuration/Group``.
    public func terminate(killAfter grace: Duration, group: Bool = false) {
        if group { beginUsingNumber() } else if termination != nil { return }
        try? send(.terminate, toGroup: group)
        Self.perform(after: grace) { [self] in
            try? send(.kill, toGroup: group)
            if group { endUsingNumber() }
        }
    }

    private static func perform(after delay: Duration, _ body: @escaping @Sendable () -> Void) {
        do throws(Errno) { try DispatchWorkers.prepare() } catch {
            // Without descriptors or threads for a timer of libdispatch.
            let date = Deadline.now + delay
            let thread = try? JoinableThread(name: "reactor.grace") {
                while case let rest = Deadline.now.duration(to: date), rest > .zero {
                    poll(nil, 0, rest.wholeMilliseconds)
                }
                body()
            }
            // Nothing would ever do it.
            if thread == nil { body() }
            return
        }
        let date = DispatchTime.now() + .nanoseconds(Int(clamping: delay.wholeNanoseconds))
        DispatchQueue.global().asyncAfter(deadline: date, execute: body)
    }

    // MARK: Its terminal

    /// Sets the size of the process's terminal. The kernel sends SIGWINCH to the terminal's foreground processes.
    ///
    /// - Throws: ``IOError`` with an error of ioctl_tty(2): `Errno(rawValue: ENOTTY)` for a process without a terminal;
    ///   `Errno.badFileDescriptor` after the stream of its standard output was closed.
    public func resizeTerminal(to size: Terminal.Size) throws(IOError) {
        try attempt(.resize, "the terminal of \(subject)") { () throws(Errno) in
            guard let terminal else { throw Errno(rawValue: ENOTTY) }
            try terminal.use { (number) throws(Errno) in
                _ = try SystemCall.make { reactor_terminal_resize(number, size.rows, size.columns) }
            }
        }
    }
}

extension ChildProcess: CustomStringConvertible {
    /// The process's number, its program, and whether it runs.
    public var description: String {
        "process \(processIdentifier) (\(name)): \(termination.map { "\($0.reason)" } ?? "running")"
    }
}

/// Collects processes that run when the last reference to them is released.
private enum Collector {
    /// Those that there were neither descriptors nor threads for, until the next one comes.
    private static let waiting = Mutex<[CInt]>([])
    private static let owner = DescriptorOwner()

    static func add(_ descriptor: CInt) {
        owner.take(descriptor)
        let descriptors = waiting.withLock { exchange(&$0, with: []) } + [descriptor]
        let left = descriptors.filter { !collectAtEnd($0) }
        waiting.withLock { $0 += left }
    }

    private static func collectAtEnd(_ descriptor: CInt) -> Bool {
        guard (try? DispatchWorkers.prepare()) != nil else {
            return (try? JoinableThread(name: "reactor.collect") { collect(descriptor) }) != nil
        }
        let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: .global(qos: .utility))
        source.setEventHandler { source.cancel() }
        source.setCancelHandler { collect(descriptor) }
        source.activate()
        return true
    }

    /// Waits for the end: a debugger may have the process for some time after that.
    private static func collect(_ descriptor: CInt) {
        _ = ChildProcess.Termination(collecting: descriptor, waits: true)
        owner.close(descriptor)
    }
}

// MARK: - How it has ended

extension ChildProcess {
    /// How a process has ended, and what it has used.
    public struct Termination: Sendable, Hashable {
        /// Why a process has ended.
        @nonexhaustive public enum Reason: Sendable, Hashable {
            /// It returned from main or called exit(3), with a status from 0 to 255.
            case exited(status: Int32)
            /// A signal ended it, perhaps with a core dump.
            case signalled(Signal, dumpedCore: Bool)
            /// Other code in this program collected it: by a wait for any child, or by ignoring SIGCHLD.
            case unknown
        }

        /// Why it has ended.
        public let reason: Reason
        /// The processor time outside the kernel of the process, and of those of its children that it has waited for
        /// (getrusage(2)); zero if the reason is unknown.
        public let userTime: Duration
        /// Their processor time in the kernel.
        public let systemTime: Duration
        /// The peak of resident memory in bytes: at least that of this process at the spawn, as both shared memory then.
        public let maximumResidentSize: Int

        /// Whether it has exited with status 0.
        public var isSuccess: Bool { reason == .exited(status: 0) }

        /// Collects the process of a pidfd, or only looks at it, so that it keeps its number; nil if it has not ended.
        init?(collecting descriptor: CInt, waits: Bool = false, keepsNumber: Bool = false) {
            let end = reactor_collect(descriptor, waits, keepsNumber)
            switch end.code {
            case 0, -EAGAIN: return nil
            case CInt(CLD_EXITED): reason = .exited(status: end.status)
            case CInt(CLD_KILLED), CInt(CLD_DUMPED):
                reason = .signalled(Signal(rawValue: end.status), dumpedCore: end.code == CInt(CLD_DUMPED))
            default: reason = .unknown
            }
            userTime = .microseconds(end.user_time)
            systemTime = .microseconds(end.system_time)
            maximumResidentSize = end.maximum_resident_size * 1024
        }
    }
}

extension ChildProcess.Termination.Reason: CustomStringConvertible {
    /// A phrase such as `exited with status 1` or `ended by SIGKILL`.
    public var description: String {
        switch self {
        case .exited(let status): "exited with status \(status)"
        case .signalled(let signal, let dumpedCore):
            "ended by \(signal)\(dumpedCore ? ", core dumped" : "")"
        case .unknown: "ended"
        }
    }
}
