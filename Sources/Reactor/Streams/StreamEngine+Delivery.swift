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
    /// Delivers, on the thread of `station`'s loop, what is pending, and what the kernel reports.
    func serve(_ station: StreamStation, _ readiness: Readiness) {
        turn(to: station, isReady: !readiness.isDisjoint(with: [.readable, .writable]))
    }

    /// - Parameter since: How many transfers there had been when the kernel was asked on purpose.
    private func turn(to station: StreamStation, isReady: Bool, since: UInt64? = nil) {
        var recipient: Recipient?
        let action = state.withLock { state in
            let action = state.turn(isReady: isReady, since: since)
            if case .deliver = action { recipient = self.recipient(state) }
            return action
        }
        guard case .deliver(let event) = action, let recipient = recipient.take() else {
            return perform(action, on: station)
        }
        if !deliver(event, to: recipient, on: nil) { station.isHandled = false }
    }

    @inline(never)
    private func perform(_ action: StreamMachine.Action, on station: StreamStation) {
        switch action {
        case .deliver, .askBackend, .updateLoops: break
        case .none: station.isHandled = false
        case .disarm:
            station.isHandled = false
            try? station.setInterest([])
        case .askKernel(let since): turn(to: station, isReady: backend.isReady(), since: since)
        case .checkRoom(let since): checkRoom(station, since: since)
        case .enqueue: if let queue = state.withLock({ $0.queue }) { callOut(on: queue) }
        }
    }

    private func checkRoom(_ station: StreamStation, since: UInt64) {
        do throws(Errno) {
            let room = try backend.checkRoom()
            state.withLock { $0.machine.checked(room, since: since) }
            // A buffer may have been drained meanwhile; a kernel that has no room has to be watched.
            if room == .awaited { refresh() } else if room == .full { RunLoop.current.core.follow(self) }
        } catch {
            fail(error)
        }
        turn(to: station, isReady: false)
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
        let errand = state.withLock { state -> Errand? in
            guard !state.machine.hasMoreInTurn else { return nil }
            _ = state.machine.delivered(event, toDelegate: isDelivered, goesOn: false)
            return state.errand
        }
        if let errand { run(errand) } else { goOn(after: event, isDelivered, on: queue) }
        return isDelivered
    }

    @inline(never)
    private func goOn(after event: Stream.Event, _ isDelivered: Bool, on queue: StreamQueue?) {
        var recipient: Recipient?
        let (action, errand) = state.withLock { state -> (StreamMachine.Action, Errand) in
            let goesOn = state.isDelivered(on: queue)
            let action = state.machine.delivered(event, toDelegate: isDelivered, goesOn: goesOn)
            if case .deliver = action { recipient = self.recipient(state) }
            return (action, state.errand)
        }
        if case .deliver(let next) = action, let recipient = recipient.take() {
            deliver(next, to: recipient, on: queue)
        } else {
            run(errand)
        }
    }
}

extension StreamEngine.State {
    @inline(__always)
    fileprivate mutating func turn(isReady: Bool, since: UInt64?) -> StreamMachine.Action {
        if isReady {
            let action = machine.becomeReady(since: since)
            if action == .disarm { homes.update(.current) { ($0.isDisarmed, $0.interest) = (true, []) } }
            guard action == .none else { return action }
        }
        guard machine.canDeliver else { return .none }
        // Whether the station that this thread's loop is serving is where the stream is scheduled.
        guard homes.update(.current, { $0.isSettled }) ?? false || isAtHome else { return .none }
        return machine.turn(isOnQueue: queue != nil)
    }

    /// Whether the stream is scheduled in the mode that this thread's loop is running in.
    private var isAtHome: Bool {
        let loop = RunLoop.current
        guard let mode = loop.currentMode, let standing = homes[loop.identity] else { return false }
        return standing.membership.contains(mode, common: loop.core.commonModes)
    }

    /// Whether events are still delivered on `queue`; if that is nil, by this thread's loop.
    fileprivate func isDelivered(on queue: StreamQueue?) -> Bool {
        queue.map { $0 === self.queue } ?? isAtHome
    }
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
            join(try ResidentThread.streams.runLoop(), .default) { $0.queue = queue }
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
                run(state.withLock { $0.errand })
            }
        }
    }
}

extension StreamEngine.State {
    /// Forgets the queue; a callout that is on it, and has not begun, holds up no other delivery.
    mutating func dropQueue() {
        machine.leaveQueue()
        queue = nil
    }
}
