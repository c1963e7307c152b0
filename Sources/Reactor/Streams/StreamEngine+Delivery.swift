import SystemPackage

/// A queue that a stream's events are delivered on, in the place of run loops. Being another object tells it from the
/// stream's earlier ones: what is left on those is not for it.
package final class StreamQueue: Sendable {
    /// Puts a callout on the queue.
    package typealias Enqueue = @Sendable (_ callout: @escaping @Sendable () -> Void) -> Void

    fileprivate let enqueue: Enqueue

    fileprivate init(_ enqueue: @escaping Enqueue) { self.enqueue = enqueue }
}

/// Who receives an event.
struct Recipient: ~Copyable {
    let stream: Stream?
    /// Nil if the stream has to be asked.
    let delegate: (any StreamDelegate)?

    /// Calls the delegate. False if there is none.
    ///
    /// The references are used in place: a name for one of them would count it.
    @inline(__always)
    fileprivate consuming func receive(_ event: Stream.Event) -> Bool {
        guard stream != nil else { return true }
        if delegate != nil {
            delegate!.stream(stream!, handle: event)
        } else if let delegate = stream!.delegate ?? stream! as? any StreamDelegate {
            delegate.stream(stream!, handle: event)
        } else {
            return false
        }
        return true
    }
}

// MARK: - On a loop

extension StreamEngine {
    /// Delivers what is pending, and what the kernel reports, on the thread of `source`'s loop.
    ///
    /// - Parameters:
    ///   - isReady: Whether the kernel reports that bytes can be moved.
    ///   - since: How many transfers there had been when the engine asked the kernel.
    func turn(on source: StreamSource, isReady: Bool, since: UInt64? = nil) {
        var recipient: Recipient?
        let action = state.withLock { state in
            let action = state.machine.turn(
                on: .current, isReady: isReady, since: since,
                isInRunningMode: isInRunningMode)
            if case .deliver = action { recipient = self.recipient(state) }
            return action
        }
        guard case .deliver(let event) = action, let recipient = recipient.take() else {
            return perform(action, on: source)
        }
        if !deliver(event, to: recipient, on: nil) { source.isHandled = false }
    }

    /// Does what the machine has decided.
    ///
    /// - Parameter source: What this thread's loop is serving, if that brought it about.
    @inline(never)
    func perform(_ action: StreamMachine.Action, on source: StreamSource? = nil) {
        switch action {
        case .none, .deliver: source?.isHandled = false
        case .disarm:
            source?.isHandled = false
            try? source?.setInterest([])
        case .askKernel(let since):
            if let source { turn(on: source, isReady: backend.isReady(), since: since) }
        case .checkRoom(let since): if let source { checkRoom(source, since: since) }
        case .enqueue: if let queue = state.withLock({ $0.queue }) { callOut(on: queue) }
        case .askBackend: refresh()
        case .raise: raise()
        case .updateLoops: updateLoops()
        }
    }

    private func checkRoom(_ source: StreamSource, since: UInt64) {
        do throws(Errno) {
            let room = try backend.checkRoom()
            state.withLock { $0.machine.checked(room, since: since) }
            // A buffer may have been drained meanwhile; a kernel that has no room has to be watched.
            if room == .awaited { refresh() } else if room == .full { RunLoop.current.core.update(self) }
        } catch {
            fail(error)
        }
        turn(on: source, isReady: false)
    }

    /// Calls the delegate for `event`, and for the others of its turn.
    ///
    /// - Parameter queue: Where this is called; nil for a loop.
    /// - Returns: Whether the first event has been delivered.
    @discardableResult
    @inline(__always)
    private func deliver(
        _ event: Stream.Event, to recipient: consuming Recipient, on queue: StreamQueue?
    ) -> Bool {
        let isDelivered = recipient.receive(event)
        let action = state.withLock { state -> StreamMachine.Action? in
            guard !state.machine.hasMoreInTurn else { return nil }
            _ = state.machine.delivered(event, toDelegate: isDelivered, goesOn: false)
            return state.machine.next
        }
        if let action {
            if action != .none { perform(action) }
        } else {
            goOn(after: event, isDelivered, on: queue)
        }
        return isDelivered
    }

    @inline(never)
    private func goOn(after event: Stream.Event, _ isDelivered: Bool, on queue: StreamQueue?) {
        var recipient: Recipient?
        let action = state.withLock { state -> StreamMachine.Action in
            let goesOn =
                queue.map { $0 === state.queue } ?? state.machine.isScheduled(on: .current, isInRunningMode)
            let action = state.machine.delivered(event, toDelegate: isDelivered, goesOn: goesOn)
            guard case .deliver = action else { return state.machine.next }
            recipient = self.recipient(state)
            return action
        }
        if case .deliver(let next) = action, let recipient = recipient.take() {
            deliver(next, to: recipient, on: queue)
        } else {
            perform(action)
        }
    }
}

/// Whether an item with this membership is in the mode that this thread's loop runs in.
private func isInRunningMode(_ membership: Membership) -> Bool {
    let loop = RunLoop.current
    guard let mode = loop.currentMode else { return false }
    return membership.contains(mode, common: loop.core.commonModes)
}

// MARK: - On a queue

// The hidden loop waits for the kernel and the backend, as a client's loop would; what it finds to deliver goes to the
// queue. Nothing more is found before that has been delivered, so a queue of any width calls the delegate once at a
// time, and in order.

extension StreamEngine {
    /// Has events delivered on the queue that `enqueue` is of, and on no loop; or, with nil, nowhere.
    func setQueue(_ enqueue: StreamQueue.Enqueue?) {
        leaveLoops()
        guard let enqueue else { return }
        let queue = StreamQueue(enqueue)
        do throws(Errno) {
            try join(ResidentThread.streams.runLoop(), .default) { state in
                state.machine.joinQueue()
                state.queue = queue
            }
        } catch {
            fail(error)
        }
    }

    func leaveQueue() {
        if state.withLock({ $0.queue != nil }) { leaveLoops() }
    }

    /// Puts a callout on the queue. It finds out only there whether it is still wanted, and what there is to deliver.
    func callOut(on queue: StreamQueue) {
        queue.enqueue { [self] in
            var recipient: Recipient?
            let action = state.withLock { state -> StreamMachine.Action in
                guard state.queue === queue else { return .none }
                let action = state.machine.queueTurned()
                if case .deliver = action { recipient = self.recipient(state) }
                return action
            }
            if case .deliver(let event) = action, let recipient = recipient.take() {
                deliver(event, to: recipient, on: queue)
            } else {
                perform(state.withLock { $0.machine.next })
            }
        }
    }
}
