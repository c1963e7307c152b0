import Synchronization
import SystemPackage

// What tasks do with a stream. None of it waits; between attempts a task waits for the stream's events.

extension StreamEngine {
    /// The delegate that stands for tasks.
    ///
    /// - Precondition: The stream has no other delegate and no subclass, and is not handed off.
    func taskDelegate() -> UnparkingDelegate {
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
        guard let delegate = setTaskDelegate(UnparkingDelegate()) else {
            fatalError("A task cannot use a stream that has a delegate: set the delegate to nil first.")
        }
        return delegate
    }

    /// Schedules the stream on `loop` for the task, in `modes`, unless it is scheduled already.
    func scheduleForTask(on loop: RunLoop, _ modes: ModeSet) {
        guard !state.withLock({ $0.machine.isScheduled }) else { return }
        for mode in modes.members { join(loop, mode) { $0.isScheduledForTask = true } }
    }

    /// The loop that the client has scheduled the stream on, and its modes there.
    var scheduledPlace: (loop: RunLoop, modes: ModeSet)? {
        guard let place = state.withLock({ $0.isScheduledForTask || $0.queue != nil ? nil : $0.place }) else {
            return nil
        }
        return (place.loop, place.membership.entryModes(common: place.loop.commonModes))
    }

    /// Tells the backend that a task begins to wait, if it wants to know.
    func noteWait() {
        if reportsWaits.load(ordering: .relaxed) { backend.noteWait() }
    }

    /// Whether a task waits for the stream's next event; nil if no task uses the stream.
    var isTaskWaiting: Bool? { state.withLock { $0.handoff == nil ? $0.taskDelegate : nil }?.isWaiting }

    /// Whether a delegate or a hand-off receives the stream's events.
    var hasRecipient: Bool { delegate != nil || state.withLock { $0.handoff != nil } }

    /// Whether the opening is still in progress. Throws if it failed.
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
        if let error = backend.failure {
            fail(error)
            refresh()
            throw failure
        }
        return backend.isFlushed
    }
}

// MARK: - Putting bytes back

/// Bytes that a task has read and not used: the next ones to read.
final class PutBackBytes {
    fileprivate var bytes = ByteQueue()
    /// The end or the error that the task has reached behind them.
    fileprivate let ending: Availability

    fileprivate init(ending: Availability) { self.ending = ending }
}

extension StreamEngine {
    /// Makes bytes that were read the next ones to read. Does nothing once the stream is closed.
    func putBack(_ bytes: [UInt8]) {
        guard !bytes.isEmpty else { return }
        perform(state.withLock { $0.takeBack(bytes) })
    }

    var hasPutBackBytes: Bool { state.withLock { $0.putBack != nil } }

    /// Whether a task or a hand-off may have read bytes that it has not used yet.
    var hasReadAhead: Bool {
        state.withLock { $0.handoff != nil || $0.taskDelegate?.readsAhead == true }
    }

    /// Removes and returns bytes that were put back.
    func takePutBackBytes() -> [UInt8] {
        state.withLock { state in
            guard let count = state.putBack?.bytes.count else { return [] }
            var bytes: [UInt8] = []
            _ = bytes.append(upTo: count) { state.takePutBack(into: &$0).count }
            return bytes
        }
    }
}

extension StreamEngine.State {
    /// Who reports that bytes can be moved. The kernel does not report bytes that were put back.
    var readinessSource: ReadinessSource { self.putBack == nil ? backend.readinessSource : .backend }

    fileprivate mutating func takeBack(_ bytes: [UInt8]) -> StreamMachine.Action {
        guard let ending = machine.reopen() else { return .none }
        // Bytes that the engine keeps come after these. A backend that takes them back finds its end again.
        if self.putBack != nil || !backend.putBack(bytes) {
            let putBack = self.putBack ?? PutBackBytes(ending: ending)
            putBack.bytes.prepend(bytes)
            self.putBack = putBack
            machine.changeReadinessSource(readinessSource)
        }
        return next
    }

    /// As ``StreamBackend/readNow(into:)``, of the bytes that were put back first.
    @inline(__always)
    mutating func readNow(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer? {
        self.putBack == nil ? try backend.readNow(into: &buffer) : takePutBack(into: &buffer)
    }

    fileprivate mutating func takePutBack(into buffer: inout MutableRawSpan) -> Transfer {
        let putBack = self.putBack!
        let count = putBack.bytes.take(into: &buffer)
        if putBack.bytes.count == 0 { endPutBack() }
        return Transfer(count: count)
    }

    private mutating func endPutBack() {
        guard let ending = self.putBack.take()?.ending else { return }
        machine.changeReadinessSource(readinessSource)
        machine.note(ending)
    }
}
