import SystemPackage

/// A queue that a stream's events are told on, in the place of run loops.
package struct StreamQueue: Sendable {
    /// Puts a callout on the queue.
    package typealias Enqueue = @Sendable (_ callout: @escaping @Sendable () -> Void) -> Void

    fileprivate let enqueue: Enqueue
    /// Tells it from the stream's earlier ones: what is left on those is not for it.
    fileprivate let number: UInt64
    /// Whether a callout is on the queue, and has not begun.
    fileprivate var isEnqueued = false
}

// The hidden loop waits for the kernel and the backend, as a client's loop would; what it finds to tell goes to the
// queue. Nothing more is found before that has been told, so a queue of any width calls the delegate once at a time,
// and in order.

extension StreamEngine {
    /// Has the delegate told of events on the queue that `enqueue` is of, and on no loop; or, with nil, nowhere.
    func setQueue(_ enqueue: StreamQueue.Enqueue?) {
        leaveLoops()
        guard let enqueue else { return }
        do throws(Errno) {
            join(try ResidentThread.streams.runLoop(), .default) { $0.setQueue(enqueue) }
        } catch {
            fail(error)
        }
    }

    func leaveQueue() {
        if state.withLock({ $0.queue != nil }) { leaveLoops() }
    }

    /// Puts a callout on the queue. It finds out only there whether it is still wanted, and what there is to tell.
    func callOut(on queue: StreamQueue) {
        let number = queue.number
        queue.enqueue { [self] in
            guard let events = state.withLock({ $0.beginCallout(on: number) }) else { return }
            tell(events, first: nil) { $0.queue?.number == number }
        }
    }
}

extension StreamEngine.State {
    fileprivate mutating func setQueue(_ enqueue: @escaping StreamQueue.Enqueue) {
        queueCount += 1
        queue = StreamQueue(enqueue: enqueue, number: queueCount)
    }

    /// Forgets the queue; a callout that is on it, and has not begun, holds nobody up.
    mutating func dropQueue() {
        if queue?.isEnqueued == true { isTelling = false }
        queue = nil
    }

    /// The queue to put a callout on, which counts as under way from now on; nil if there is no queue.
    mutating func enqueueCallout() -> StreamQueue? {
        guard queue != nil else { return nil }
        isTelling = true
        queue?.isEnqueued = true
        return queue
    }

    /// What a callout has to tell; nil if it is no longer wanted.
    fileprivate mutating func beginCallout(on number: UInt64) -> Stream.Event? {
        guard queue?.number == number else { return nil }
        queue?.isEnqueued = false
        return machine.raised
    }
}
