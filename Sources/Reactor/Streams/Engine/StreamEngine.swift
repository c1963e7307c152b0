import Synchronization
import SystemPackage

/// Performs what a stream's ``StreamMachine`` decides, on its backend, its run loop and its delegate. Safe from any thread.
///
/// The engine has a ``StreamSource`` on the loop that the stream is scheduled on. The source is ready when the kernel reports
/// its descriptor or the engine signals it; then ``serve(_:)`` runs on the loop's thread.
final class StreamEngine: Sendable {
    /// The fields that each event uses come first, next to each other.
    @dynamicMemberLookup
    struct State: ~Copyable {
        var machine: StreamMachine
        /// Whether the stream is a client's subclass, which may override `delegate` and `write`.
        var isSubclassed = false
        /// Whether the stream is on its loop only because a task has used it on no loop.
        var isScheduledForTask = false
        var backend: any StreamBackend
        /// The stream, which owns the engine.
        var stream = WeakReference<Stream>(nil)
        /// The delegate that the stream was given.
        var delegate = WeakReference<any StreamDelegate>(nil)
        private var details: Details?
        /// The stream's source on the loop that the machine has scheduled it on.
        var loopSource: LoopSource?
        /// Stands for the tasks that use the stream, in the place of a delegate.
        var taskDelegate: UnparkingDelegate?
        /// How often the client has set the delegate.
        var delegateChanges: UInt32 = 0

        init(_ backend: any StreamBackend) {
            self.backend = backend
            machine = StreamMachine(backend.event)
        }

        /// A property of the details, which are made when one is set.
        subscript<Value>(dynamicMember property: ReferenceWritableKeyPath<Details, Value?>) -> Value? {
            @inline(__always) get { details?[keyPath: property] }
            set {
                if details == nil, newValue != nil { details = Details() }
                details?[keyPath: property] = newValue
            }
        }
    }

    /// The state that few streams have.
    ///
    /// `@unchecked Sendable`: only the state refers to it, which the engine's lock guards.
    final class Details: @unchecked Sendable {
        /// What tasks have read and not used, which comes before the bytes of the backend.
        var putBack: PutBackBytes?
        /// The queue that events are delivered on, if not on a loop.
        var queue: StreamQueue?
        /// The hand-off that owns the stream, until the stream is closed.
        var handoff: HandoffBinding?
        /// The events that went to a delegate without a method for them.
        var ignored: Stream.Event?
        var name: ItemName?
        /// In debug mode, the pipe that a child of this process writes to, if the stream reads that.
        var childOutput: SharedDescriptor?
    }

    /// The most that one read(2) or write(2) moves. A longer request is cut.
    static let mostBytes = 0x7fff_f000

    let state: Mutex<State>
    /// The path or descriptor that the stream was created for, as its errors name it; nil where the backend
    /// knows.
    private let givenSubject: String?
    let process = ProcessIdentity.current
    /// Whether the backend wants to know when a task waits: spares the others a lock for each wait.
    let reportsWaits = Atomic(false)

    init(_ backend: any StreamBackend, subject: String? = nil) {
        givenSubject = subject
        state = Mutex(State(backend))
    }

    /// Makes `stream` the owner, for which events are delivered.
    func attach(to stream: Stream) {
        let isSubclassed = type(of: stream) != InputStream.self && type(of: stream) != OutputStream.self
        state.withLock { state in
            state.stream = WeakReference(stream)
            state.isSubclassed = isSubclassed
        }
    }

    var backend: any StreamBackend { state.withLock { $0.backend } }

    /// The delegate that the stream was given.
    var delegate: (any StreamDelegate)? {
        get {
            var delegate: (any StreamDelegate)?
            state.withLock { state in
                let given = state.delegate.load()
                delegate = given === state.taskDelegate ? nil : given
            }
            return delegate
        }
        set {
            // Released after unlocking: this may be the last reference, and its deinitializer is the client's
            // code.
            var former: (any StreamDelegate)?
            guard replacesTaskDelegate(newValue) else { return }
            let (mustRefresh, handoff) = state.withLock { state in
                former = state.delegate.load()
                return (setDelegate(newValue, isOther: former !== newValue, &state), state.handoff)
            }
            withExtendedLifetime(former) {}
            if mustRefresh { refresh() }
            handoff?.streamChanged()
        }
    }

    /// Makes `new` the delegate that stands for tasks, unless there is one.
    ///
    /// - Returns: The delegate that stands for tasks; nil if there is a client's delegate.
    func setTaskDelegate(_ new: UnparkingDelegate) -> UnparkingDelegate? {
        var former: (any StreamDelegate)?
        let (result, mustRefresh) = state.withLock { state -> (UnparkingDelegate?, Bool) in
            if let known = state.taskDelegate { return (known, false) }
            former = state.delegate.load()
            guard former == nil else { return (nil, false) }
            state.taskDelegate = new
            return (new, setDelegate(new, isOther: true, &state))
        }
        withExtendedLifetime(former) {}
        if mustRefresh { refresh() }
        return result
    }

    /// Returns whether an event may be due now.
    private func setDelegate(
        _ delegate: (any StreamDelegate)?, isOther: Bool, _ state: inout State
    ) -> Bool {
        state.delegate = WeakReference(delegate)
        state.ignored = nil
        state.delegateChanges &+= 1
        return delegate != nil && state.machine.setDelegate(isOther: isOther) && state.machine.isScheduled
    }

    /// Makes room for a delegate in the place of the one that stands for tasks. False if there is none to
    /// set.
    private func replacesTaskDelegate(_ delegate: (any StreamDelegate)?) -> Bool {
        guard let taskDelegate = state.withLock({ $0.taskDelegate }), taskDelegate !== delegate else {
            return true
        }
        guard delegate != nil else { return false }
        require(
            !taskDelegate.isInUse,
            "A stream cannot get a delegate while a task uses it: cancel the task, or wait for it, first.")
        let isScheduledForTask = state.withLock { state in
            state.taskDelegate = nil
            state.machine.repeatEnding()
            return state.isScheduledForTask
        }
        if isScheduledForTask { detach() }
        return true
    }

    var status: Stream.Status { state.withLock { $0.machine.status } }

    /// What the stream reads or writes, as errors name it.
    var subject: String { givenSubject ?? backend.subject }

    /// Why the stream failed, with the operation and its subject.
    var error: (any Error)? {
        let (error, label) = state.withLock { ($0.machine.error, $0.name?.label) }
        if let failure = error as? IOError { return label == nil ? failure : failure.labelled(label) }
        if let unmet = error as? UnmetRequirement { return failure(unmet.reason) }
        return (error as? Errno).map { failure($0) } ?? error
    }

    func failure(_ errno: Errno) -> IOError { failure(.system(errno)) }

    /// The failure of what the stream does now.
    func failure(_ reason: IOError.Reason) -> IOError {
        let (backend, label) = state.withLock { ($0.backend, $0.name?.label) }
        return IOError(backend.failedOperation, givenSubject ?? backend.subject, reason, label: label)
    }

    /// Whether the client forgot to open the stream. A subclass may write without opening its engine.
    var isUnopened: Bool { state.withLock { $0.machine.status == .notOpen && !$0.isSubclassed } }

    var isOpen: Bool { state.withLock { $0.machine.isOpen } }

    /// Whether nothing has been read or written since the last event for that.
    var awaitsTransfer: Bool { state.withLock { $0.machine.isOpen && $0.machine.isUnacknowledged } }

    /// Whether the stream was closed, which a failed one's status does not show.
    var isClosed: Bool { state.withLock { $0.machine.isClosed } }

    /// Whether a read or a write would not wait.
    var isReady: Bool {
        let (isReady, mustRefresh) = state.withLock { state in
            guard state.machine.isOpen else { return (false, false) }
            guard state.putBack == nil else { return (true, false) }
            guard state.machine.isScheduled else { return (state.backend.isReady(), false) }
            let isReady = state.backend.isReadyOnLoop()
            // The backend has received what the kernel would have reported.
            return (isReady, isReady && state.machine.readinessSource == .kernelThroughBackend)
        }
        if mustRefresh { refresh() }
        return isReady
    }
}

// MARK: - Opening and closing

extension StreamEngine {
    func open() {
        guard let backend = state.withLock({ $0.machine.open() ? $0.backend : nil }) else { return }
        if LoopDiagnostics.isReporting { Watchdog.supervise(self) }
        var isClosed = false
        do throws(Errno) {
            let opened = try backend.open(for: self)
            update { state in
                state.backend = opened
                isClosed = state.machine.isClosed
                state.refresh()
            }
        } catch {
            update { state in
                state.fail(error)
                isClosed = state.machine.isClosed
            }
        }
        // Another thread closed the stream meanwhile, and found nothing to release yet.
        if isClosed { try? self.backend.close() }
    }

    /// Checks an opening that takes time. Returns whether it is still in progress.
    @discardableResult
    func advanceOpening() -> Bool {
        state.withLock { state in
            state.advanceOpening()
            return state.machine.status == .opening
        }
    }

    /// The stream delivers no event before ``release()``: the connection that it shares may be open before the client has
    /// opened its other half. No loop, queue or task waits for that to move bytes.
    ///
    /// - Parameter awaitsPass: Whether to call the backend's `passCompleted()`.
    func hold(awaitsPass: Bool) { state.withLock { $0.machine.hold(awaitsPass: awaitsPass) } }

    /// Lets events be delivered from the next update on.
    func release() {
        state.withLock { state in
            state.advanceOpening()
            state.machine.release()
        }
    }

    /// Fails the stream, unless it was closed meanwhile.
    func fail(_ error: any Error) { state.withLock { $0.fail(error) } }

    /// Reports that accepted bytes are lost. That is an error of a closed stream too.
    func noteLostBytes(_ error: Errno) {
        state.withLock { $0.machine.loseBytes($0.backend.refusal ?? error) }
        refresh()
    }

    /// - Parameter evenUnopened: Whether a stream that was never opened is closed too, and cannot be opened any more.
    func close(evenUnopened: Bool = false) {
        guard process.isCurrent else { return closeDescriptor(evenUnopened: evenUnopened) }
        let closed = state.withLock { state -> Closed? in
            guard state.machine.close(evenUnopened: evenUnopened || state.backend.closesUnopened) else {
                return nil
            }
            return Closed(
                left: state.detach(), backend: state.backend, handoff: state.handoff.take(),
                taskDelegate: state.taskDelegate)
        }
        guard let closed else { return }
        closed.left?.end()
        do throws(Errno) { try closed.backend.close() } catch {
            state.withLock { $0.machine.loseBytes(error) }
        }
        closed.handoff?.streamChanged()
        closed.taskDelegate?.streamChanged()
    }

    /// The work that remains once the stream counts as closed.
    private struct Closed {
        let left: LoopSource?
        let backend: any StreamBackend
        let handoff: HandoffBinding?
        let taskDelegate: UnparkingDelegate?
    }

    /// Closes a stream of the parent in a child of fork(2): its descriptor, and nothing else.
    ///
    /// The loops, the workers and the bytes to send are the parent's. No lock is waited for: one that a
    /// thread of the parent held stays locked in the child.
    private func closeDescriptor(evenUnopened: Bool) {
        let backend = state.withLockIfAvailable {
            $0.machine.close(evenUnopened: evenUnopened) ? $0.backend : nil
        }
        backend??.closeDescriptor()
    }

    /// Ends a stream that has been released, opened or not.
    func retire() {
        if LoopDiagnostics.isReporting { reportRelease() }
        close(evenUnopened: process.isCurrent)
    }
}

// MARK: - Properties

extension StreamEngine.State {
    /// Whether the client may set the offset.
    fileprivate var mayMove: Bool { machine.status == .notOpen || machine.isOpen && self.handoff == nil }
}

extension StreamEngine {
    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        // A stream at its end, or closed, uses no offset any more; that of a hand-off is its worker's.
        guard key != .fileCurrentOffsetKey || state.withLock({ $0.mayMove }) else { return false }
        guard backend.setProperty(value, key) else { return false }
        refresh()
        return true
    }
}
