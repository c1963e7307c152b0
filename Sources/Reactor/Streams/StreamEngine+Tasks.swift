import SystemPackage

// What tasks do with a stream. None of it waits; between attempts a task waits for the stream's events.

extension StreamEngine {
    /// The delegate that stands for tasks.
    ///
    /// - Precondition: The stream has no other delegate and no subclass, and is not handed off.
    func taskDelegate() -> TaskDelegate {
        let (known, isSubclassed, isHandedOff) = state.withLock {
            ($0.taskDelegate, $0.isSubclassed, $0.handoff != nil)
        }
        require(
            !isHandedOff, "A task cannot use a stream that is handed off: its bytes are the hand-off's.")
        if let known { return known }
        require(
            !isSubclassed,
            "A task cannot use a stream of a subclass, which has methods of its own: use a delegate."
        )
        guard let delegate = setTaskDelegate(TaskDelegate()) else {
            fatalError("A task cannot use a stream that has a delegate: set the delegate to nil first.")
        }
        return delegate
    }

    /// Has `loop` deliver the stream's events to the task, in `modes`, unless it is scheduled anyway.
    func scheduleForTask(on loop: RunLoop, _ modes: ModeSet) {
        guard !state.withLock({ $0.machine.isScheduled }) else { return }
        for mode in modes.members { join(loop, mode) { $0.isScheduledForTask = true } }
    }

    /// The loop that the client has scheduled the stream on, and its modes there.
    var scheduledPlace: (loop: RunLoop, modes: ModeSet)? {
        let attachment = state.withLock { state in
            state.isScheduledForTask || state.queue != nil ? nil : state.machine.attachment
        }
        guard let attachment, let loop = attachment.scheduled?.loop else { return nil }
        return (loop, attachment.membership.registrationModes(common: loop.commonModes))
    }

    /// Whether the opening is still under way. Throws if it failed.
    func isOpening() throws -> Bool {
        switch status {
        case .opening: return true
        case .error: throw failure
        case .notOpen, .closed: throw failure(.badFileDescriptor)
        case .open, .reading, .writing, .atEnd: return false
        }
    }

    /// Why the stream cannot be used.
    var failure: any Error {
        (status == .closed ? nil : error) ?? failure(.badFileDescriptor)
    }

    /// Whether the kernel has taken all accepted bytes.
    func isFlushed() throws -> Bool {
        let (status, backend) = state.withLock { ($0.machine.status, $0.backend) }
        guard status != .error, status != .closed, status != .notOpen else { throw failure }
        if status == .opening { return false }
        if let fault = backend.fault {
            fail(fault)
            refresh()
            throw failure
        }
        return backend.isFlushed
    }
}

// MARK: - Putting bytes back

extension StreamEngine {
    /// Makes bytes that were read the next ones to read. Does nothing once the stream is closed.
    func putBack(_ bytes: [UInt8]) {
        guard !bytes.isEmpty else { return }
        let action = state.withLock { state -> StreamMachine.Action in
            guard let ending = state.machine.reopen() else { return .none }
            if let input = state.backend as? PutBackInput {
                input.prepend(bytes, ending)
            } else {
                state.backend = PutBackInput(bytes, before: state.backend, ending, of: self)
            }
            state.machine.putBack()
            return state.next
        }
        perform(action)
    }

    /// Whether a task or a hand-off may have read bytes that it has not used yet.
    var hasReadAhead: Bool {
        state.withLock { $0.handoff != nil || $0.taskDelegate?.readsAhead == true }
    }

    /// Drops bytes that were put back. Returns whether there were any.
    func dropPutBackBytes() -> Bool {
        state.withLock { state in
            guard let input = state.backend as? PutBackInput else { return false }
            state.backend = input.rest
            state.machine.changeReadinessSource(input.rest.readinessSource)
            return true
        }
    }

    /// The bytes that were put back have been read again.
    fileprivate func endPutBack(_ backend: PutBackInput) {
        state.withLock { state in
            guard state.backend === backend else { return }
            state.backend = backend.rest
            state.machine.endPutBack(backend.rest.readinessSource)
            if case .failed(let error) = backend.ending { state.machine.fail(error) }
        }
    }
}

/// Bytes that a task has read and not used, before the rest of its stream.
final class PutBackInput: InputBackend {
    /// The stream's backend, which is its backend again when the bytes have been read.
    let rest: any StreamBackend
    /// `unowned` is safe: only the engine's methods call this, so the engine exists during each call.
    private unowned let engine: StreamEngine
    private let state: Mutex<State>

    private struct State {
        var bytes: ByteQueue
        /// How the stream had ended before.
        var ending: StreamMachine.Ending
    }

    init(
        _ bytes: [UInt8], before rest: any StreamBackend, _ ending: StreamMachine.Ending,
        of engine: StreamEngine
    ) {
        (self.rest, self.engine) = (rest, engine)
        state = Mutex(State(bytes: ByteQueue(bytes), ending: ending))
    }

    /// Puts more bytes back, before those that are left.
    func prepend(_ bytes: [UInt8], _ ending: StreamMachine.Ending) {
        state.withLock { state in
            state.bytes.prepend(bytes)
            if case .none = ending { return }
            state.ending = ending
        }
    }

    /// How the stream had ended before.
    var ending: StreamMachine.Ending { state.withLock { $0.ending } }
    private var count: Int { state.withLock { $0.bytes.count } }

    var readinessSource: ReadinessSource { .backend }
    var descriptor: SharedDescriptor? { rest.descriptor }
    var refusal: (any Error)? { rest.refusal }
    var failedOperation: IOError.Operation { rest.failedOperation }
    var subject: String { rest.subject }
    var fault: Errno? { count > 0 ? nil : rest.fault }
    func isReady() -> Bool { count > 0 || rest.isReady() }
    func isReadyOnLoop() -> Bool { count > 0 || rest.isReadyOnLoop() }
    func prepare() -> Availability { count > 0 ? .ready : rest.prepare() }

    /// A file's offset is before the bytes.
    func close() throws(Errno) {
        (rest as? ReadAheadInput)?.unclaim(count)
        try rest.close()
    }

    func closeDescriptor() { rest.closeDescriptor() }

    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        let (count, isEmpty) = take(into: &buffer)
        if isEmpty { engine.endPutBack(self) }
        return Transfer(count: count, isAtEnd: isEmpty && ending.isAtEnd)
    }

    private func take(into buffer: inout MutableRawSpan) -> (count: Int, isEmpty: Bool) {
        var taken = 0
        let left = state.withLock { state in
            taken = state.bytes.take(into: &buffer)
            return state.bytes.count
        }
        return (taken, left == 0)
    }

    func property(_ key: Stream.PropertyKey) -> Any? {
        let value = rest.property(key)
        guard key == .fileCurrentOffsetKey, let offset = value as? Int else { return value }
        return offset - count
    }

    /// At another offset the bytes are not the next ones.
    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        guard rest.setProperty(value, key) else { return false }
        guard key == .fileCurrentOffsetKey else { return true }
        state.withLock { $0.bytes.removeAll() }
        engine.endPutBack(self)
        return true
    }
}
