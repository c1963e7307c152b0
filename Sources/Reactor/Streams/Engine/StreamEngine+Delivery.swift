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

/// The next step of the engine. It releases the receiver of an event with nothing locked: these may be the last references.
private enum Step: ~Copyable {
    case deliver(Stream.Event, Recipient)
    case other(StreamMachine.Action)
}

// MARK: - On a loop

extension StreamEngine {
    /// Delivers what is pending, and what the kernel reports, on the thread of the stream's loop. Returns whether an event has
    /// found its delegate.
    func serve(_ report: StreamMachine.Report) -> Bool {
        @inline(__always)
        func begin(_ state: inout sending State) -> sending Step { state.step(after: report) }
        return perform(state.withLock(begin), on: nil)
    }

    /// Calls the delegate for an event, then for the rest of the batch, or does what `step` says instead.
    ///
    /// - Parameter queue: The queue that this runs on; nil on a loop.
    /// - Returns: Whether the event has been delivered.
    @inline(__always)
    private func perform(_ step: consuming Step, on queue: StreamQueue?) -> Bool {
        switch consume step {
        case .deliver(let event, let recipient):
            let isDelivered = recipient.receive(event)
            @inline(__always)
            func end(_ state: inout sending State) -> sending Step? {
                if isDelivered, state.machine.endsLastDelivery() {
                    let action = state.next
                    return action == .none ? nil : .other(action)
                }
                return state.continueBatch(after: event, isDelivered: isDelivered, on: queue)
            }
            if let rest = state.withLock(end) { performRest(rest, on: queue) }
            return isDelivered
        case .other(let action):
            if action != .none { perform(action) }
            return false
        }
    }

    private func performRest(_ step: consuming Step, on queue: StreamQueue?) { _ = perform(step, on: queue) }

    /// Performs what the machine has decided.
    func perform(_ action: StreamMachine.Action) {
        switch action {
        case .signal, .update: update()
        case .passCompleted: backend.passCompleted()
        case .enqueue: if let queue = state.withLock({ $0.queue }) { enqueueCallback(on: queue) }
        case .disarm: try? state.withLock { $0.source(on: .current) }?.value.changeInterest([])
        case .fail(let error):
            fail(backend.transferFailed(error))
            refresh()
        case .none, .confirm, .checkRoom, .deliver: break
        }
    }
}

extension StreamEngine.State {
    /// Decides what to do about a report of this thread's loop.
    @inline(__always)
    fileprivate mutating func step(after report: StreamMachine.Report) -> Step {
        let loop = if case .made(let poll) = report { poll.loop } else { LoopIdentity.current }
        let action = machine.serve(on: loop, report, isInRunningMode: isInRunningMode)
        return step(action == .confirm || action == .checkRoom ? decide(after: action) : action)
    }

    /// Decides what to do after the delegate has been called, or was not found.
    ///
    /// - Parameter queue: The queue that it was called on; nil for this thread's loop.
    @inline(never)
    fileprivate mutating func continueBatch(
        after event: Stream.Event, isDelivered: Bool, on queue: StreamQueue?
    ) -> Step {
        let mayContinue =
            queue.map { $0 === self.queue } ?? machine.isScheduled(on: .current, isInRunningMode)
        let action = machine.delivered(event, toDelegate: isDelivered, mayContinue: mayContinue)
        return step(action == .none ? next : action)
    }

    @inline(__always)
    private func step(_ action: StreamMachine.Action) -> Step {
        guard case .deliver(let event) = action else { return .other(action) }
        let recipient = Recipient(
            stream: stream.load(), delegate: isSubclassed ? nil : delegate.load())
        return .deliver(event, recipient)
    }

    /// Decides what to do on the stream's queue.
    fileprivate mutating func beginCallback(on queue: StreamQueue) -> Step {
        let action = self.queue === queue ? machine.beginCallback() : .none
        return step(action == .none ? next : action)
    }

    /// Asks the backend what has to be known before an event is delivered.
    @inline(never)
    private mutating func decide(after action: StreamMachine.Action) -> StreamMachine.Action {
        var action = action
        if action == .confirm {
            action = machine.serve(
                on: .current, backend.isReady() ? .confirmed : .none, isInRunningMode: isInRunningMode)
        }
        guard action == .checkRoom else { return action }
        do throws(Errno) { return machine.checked(try backend.checkRoom()) } catch { return .fail(error) }
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

    /// Reports the pass that held events wait for, when the queue has done what it has now.
    func reportTurn(on queue: StreamQueue) {
        queue.enqueue { [self] in
            let backend = state.withLock { $0.queue === queue ? $0.backend : nil }
            backend?.passCompleted()
        }
    }

    /// Puts a callback on the queue. The callback itself finds out whether it is still wanted, and what to
    /// deliver.
    func enqueueCallback(on queue: StreamQueue) {
        queue.enqueue { [self] in
            _ = perform(state.withLock { $0.beginCallback(on: queue) }, on: queue)
        }
    }
}
