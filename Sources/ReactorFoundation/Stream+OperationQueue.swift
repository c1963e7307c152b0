public import Foundation
public import Reactor

extension Reactor.Stream {
    /// Has the delegate told of events in operations of `queue`, and on no run loop any longer; nil takes the stream off
    /// its queue.
    ///
    /// They are told in order and one at a time, whatever the queue's width; a suspended queue holds them back. All else
    /// is as with ``setDispatchQueue(_:)``.
    public func setDelegateQueue(_ queue: OperationQueue?) {
        guard let queue else { return setQueue(nil) }
        setQueue { callout in queue.addOperation(callout) }
    }
}
