import SystemPackage

/// A queue that delivers a stream's events instead of a run loop. Its identity distinguishes it from the
/// stream's earlier queues: callbacks that are still on those do nothing.
package final class StreamQueue: Sendable {
    /// Puts a callback on the queue.
    package typealias Enqueue = @Sendable (_ callback: @escaping @Sendable () -> Void) -> Void

    fileprivate let enqueue: Enqueue

    fileprivate init(_ enqueue: @escaping Enqueue) { self.enqueue = enqueue }
}

/// The receiver of an event.
struct Recipient: ~Copyable {
    let stream: Stream?
    /// Nil if the stream has to be asked for it.
    let delegate: (any StreamDelegate)?

    /// Calls the delegate. Returns false if there is none.
    ///
    /// The references are used in place: naming one would retain it.
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
    func serve(on source: StreamSource, _ report: StreamMachine.Report) {
        var recipient: Recipient?
        var queue: StreamQueue?
        var fault: Errno?
        let action = state.withLock { state in
            var action = state.machine.serve(on: .current, report, isInRunningMode: isInRunningMode)
            if action == .confirm || action == .checkRoom { action = state.decide(after: action, &fault) }
            switch action {
            case .deliver: recipient = self.recipient(state)
            case .enqueue: queue = state.queue
            default: break
            }
            return action
        }
        if case .deliver(let event) = action, let recipient = recipient.take() {
            if !deliver(event, to: recipient, on: nil) { source.isHandled = false }
            return
        }
        source.isHandled = false
        if let fault { return failRoom(fault) }
        if let queue { return enqueueCallback(on: queue) }
        if action == .disarm { try? source.setInterest([]) } else { perform(action) }
    }

    /// Fails the stream because a check for room has failed.
    private func failRoom(_ fault: Errno) {
        fail(backend.transferFailed(fault))
        refresh()
    }

    /// Performs what the machine has decided.
    @inline(never)
    func perform(_ action: StreamMachine.Action) {
        switch action {
        case .signal, .update: update()
        case .turnPassed: backend.turnPassed()
        default: break
        }
    }

    /// Calls the delegate for `event`, then for the rest of the batch.
    ///
    /// - Parameter queue: The queue that this runs on; nil on a loop.
    /// - Returns: Whether `event` has been delivered.
    @discardableResult
    private func deliver(
        _ event: Stream.Event, to recipient: consuming Recipient, on queue: StreamQueue?
    ) -> Bool {
        let isDelivered = recipient.receive(event)
        var recipient: Recipient?
        let action = state.withLock { state in
            let mayContinue =
                state.machine.hasMoreInBatch
                && (queue.map { $0 === state.queue }
                    ?? state.machine.isScheduled(on: .current, isInRunningMode))
            let action = state.machine.delivered(event, toDelegate: isDelivered, mayContinue: mayContinue)
            guard case .deliver = action else { return state.next }
            recipient = self.recipient(state)
            return action
        }
        if case .deliver(let next) = action, let recipient = recipient.take() {
            deliver(next, to: recipient, on: queue)
        } else if action != .none {
            perform(action)
        }
        return isDelivered
    }
}

extension StreamEngine.State {
    /// Asks the backend what has to be known before an event is delivered.
    ///
    /// - Parameter fault: Set to the error of a check for room.
    @inline(never)
    fileprivate mutating func decide(after action: StreamMachine.Action, _ fault: inout Errno?)
        -> StreamMachine.Action
    {
        var action = action
        if action == .confirm {
            action = machine.serve(
                on: .current, backend.isReady() ? .confirmed : .none, isInRunningMode: isInRunningMode)
        }
        guard action == .checkRoom else { return action }
        do throws(Errno) { return machine.checked(try backend.checkRoom()) } catch {
            fault = error
            return .none
        }
    }
}

/// Whether `membership` includes the mode that this thread's loop runs in.
private func isInRunningMode(_ membership: Membership) -> Bool {
    let loop = RunLoop.current
    guard let mode = loop.currentMode else { return false }
    return membership.contains(mode, common: loop.core.commonModes)
}

// MARK: - On a queue

// The streams thread waits for the kernel and the backend, and enqueues a callback when there is an event to
// deliver. It looks for no more events before that callback has returned, so even a concurrent queue calls
// the delegate once at a time and in order.

extension StreamEngine {
    /// Delivers events on the queue that `enqueue` leads to, and on no loop. Nil ends the delivery on a
    /// queue.
    ///
    /// - Parameter usesWorkers: Whether the queue's callbacks run on threads of libdispatch.
    func setQueue(_ enqueue: StreamQueue.Enqueue?, usesWorkers: Bool = false) {
        // Afterwards: a task that finds the stream on no loop schedules it.
        defer { state.withLock { $0.taskDelegate }?.streamChanged() }
        guard let enqueue else { return leaveQueue() }
        detach()
        let queue = StreamQueue(enqueue)
        do throws(Errno) {
            if usesWorkers { try DispatchWorkers.prepare() }
            try join(ResidentThread.streams.runLoop(), .default) { state in
                state.machine.joinQueue()
                state.queue = queue
            }
        } catch {
            fail(error)
        }
    }

    /// Ends what delivers the events in the place of a loop that the client has chosen.
    func leaveQueue() {
        if state.withLock({ $0.queue != nil || $0.isScheduledForTask }) { detach() }
    }

    /// Reports the turn that held events wait for, when the queue has done what it has now.
    func reportTurn(on queue: StreamQueue) {
        queue.enqueue { [self] in
            let backend = state.withLock { $0.queue === queue ? $0.backend : nil }
            backend?.turnPassed()
        }
    }

    /// Puts a callback on the queue. The callback itself finds out whether it is still wanted, and what to
    /// deliver.
    func enqueueCallback(on queue: StreamQueue) {
        queue.enqueue { [self] in
            var recipient: Recipient?
            let action = state.withLock { state -> StreamMachine.Action in
                guard state.queue === queue else { return .none }
                let action = state.machine.beginCallback()
                if case .deliver = action { recipient = self.recipient(state) }
                return action
            }
            if case .deliver(let event) = action, let recipient = recipient.take() {
                deliver(event, to: recipient, on: queue)
            } else {
                perform(state.withLock { $0.next })
            }
        }
    }
}
