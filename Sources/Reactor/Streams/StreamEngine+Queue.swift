import SystemPackage

/// A queue that a stream's events are told on, in the place of run loops. Being another object tells it from the
/// stream's earlier ones: what is left on those is not for it.
package final class StreamQueue: Sendable {
    /// Puts a callout on the queue.
    package typealias Enqueue = @Sendable (_ callout: @escaping @Sendable () -> Void) -> Void

    fileprivate let enqueue: Enqueue

    fileprivate init(_ enqueue: @escaping Enqueue) { self.enqueue = enqueue }
}

// The hidden loop waits for the kernel and the backend, as a client's loop would; what it finds to tell goes to the
// queue. Nothing more is found before that has been told, so a queue of any width calls the delegate once at a time,
// and in order.

extension StreamEngine {
    /// Has the delegate told of events on the queue that `enqueue` is of, and on no loop; or, with nil, nowhere.
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

    /// Puts a callout on the queue. It finds out only there whether it is still wanted, and what there is to tell.
    func callOut(on queue: StreamQueue) {
        queue.enqueue { [self] in
            var news: News?
            state.withLock { state in
                if state.beginCallout(on: queue) { news = takeNews(&state, of: state.machine.raised) }
            }
            if let news = news.take() { tell(news) { $0.queue === queue } }
        }
    }
}

extension StreamEngine.State {
    /// Forgets the queue; a callout that is on it, and has not begun, holds nobody up.
    mutating func dropQueue() {
        if isEnqueued { (isTelling, isEnqueued) = (false, false) }
        queue = nil
    }

    /// The queue to put a callout on, which counts as under way from now on; nil if there is no queue.
    mutating func enqueueCallout() -> StreamQueue? {
        guard let queue else { return nil }
        (isTelling, isEnqueued) = (true, true)
        return queue
    }

    /// Whether a callout is still wanted.
    fileprivate mutating func beginCallout(on queue: StreamQueue) -> Bool {
        guard self.queue === queue else { return false }
        isEnqueued = false
        return true
    }
}
