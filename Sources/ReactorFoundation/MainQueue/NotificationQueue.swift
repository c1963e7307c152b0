public import Foundation
public import Reactor

/// Posts notifications later, when its thread's run loop has come to the end of a pass, or has nothing else to do.
///
/// It takes the place of Foundation's, whose queues wait for Foundation's run loop. A queue belongs to the thread that
/// made it, which has one of its own accord: ``default``. Notifications are posted first in, first out, those of
/// ``PostingStyle/asap`` before those of ``PostingStyle/whenIdle`` (Foundation on Linux posts idle ones first, and each
/// kind last in, first out). Waiting notifications do not keep a loop running.
///
/// - Precondition: Every method is called on the queue's own thread.
open class NotificationQueue: NSObject {
    /// When a notification is posted. The values are Cocoa's.
    public enum PostingStyle: UInt, Sendable {
        /// When the loop is about to wait, having posted all that was to be posted as soon as possible.
        case whenIdle = 1
        /// At the end of the loop's pass that is under way, or at the beginning of the next one.
        case asap = 2
        /// At once, after coalescing.
        case now = 3
    }

    /// Which waiting notifications a new one takes the place of.
    public struct NotificationCoalescing: OptionSet, Sendable {
        /// The bits; Cocoa's.
        public let rawValue: UInt

        /// Makes a set from its bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// None.
        public static let none: NotificationCoalescing = []
        /// Those of the same name; with ``onSender``, only if the sender is the same too.
        public static let onName = NotificationCoalescing(rawValue: 1)
        /// Those of the same sender: the same object, or an equal value.
        public static let onSender = NotificationCoalescing(rawValue: 2)
    }

    private let center: NotificationCenter
    private let loop = RunLoop.current
    private var waiting: [PostingStyle: NotificationList] = [:]
    private var lastNumber = 0
    /// Is in the common modes, and tells which they are.
    private var commonObserver: RunLoop.Observer?
    /// Is in the other modes that notifications have named.
    private var otherObserver: RunLoop.Observer?

    /// Makes a queue of the calling thread, which posts to `notificationCenter`.
    public init(notificationCenter: NotificationCenter) {
        center = notificationCenter
        super.init()
    }

    /// The calling thread's queue, which posts to the default center and ends with the thread.
    open class var `default`: NotificationQueue {
        let key = "ReactorFoundation.NotificationQueue"
        let values = Thread.current.threadDictionary
        if let queue = values[key] as? NotificationQueue { return queue }
        let queue = NotificationQueue(notificationCenter: .default)
        values[key] = queue
        return queue
    }

    /// Posts `notification` in the default mode, in place of waiting ones of the same name and sender.
    open func enqueue(_ notification: Notification, postingStyle: PostingStyle) {
        enqueue(
            notification, postingStyle: postingStyle, coalesceMask: [.onName, .onSender], forModes: nil)
    }

    /// Posts `notification` later, or now.
    ///
    /// - Parameters:
    ///   - notification: Kept until it is posted or dequeued.
    ///   - postingStyle: When.
    ///   - coalesceMask: Which waiting notifications, of any style, are dequeued first.
    ///   - modes: In which modes of the loop; the default one for nil, and all common modes for ``RunLoop/Mode/common``.
    ///     One to be posted now is dropped if the loop runs in another mode, and posted if the loop does not run.
    open func enqueue(
        _ notification: Notification, postingStyle: PostingStyle, coalesceMask: NotificationCoalescing,
        forModes modes: [RunLoop.Mode]?
    ) {
        let modes = modes ?? [.default]
        dequeueNotifications(matching: notification, coalesceMask: coalesceMask)
        guard postingStyle != .now else {
            if let mode = loop.currentMode, !isServed(mode, modes) { return }
            return center.post(notification)
        }
        observe(modes)
        lastNumber += 1
        waiting[postingStyle, default: NotificationList()].append(notification, modes, number: lastNumber)
    }

    /// Drops the waiting notifications that match `notification` in all that `coalesceMask` has: with none, none.
    open func dequeueNotifications(matching notification: Notification, coalesceMask: NotificationCoalescing)
    {
        precondition(loop.isCurrent, "a notification queue is used on its own thread")
        for style in waiting.keys { waiting[style]?.remove(matching: notification, coalesceMask) }
    }
}

// MARK: - On the loop

extension NotificationQueue {
    /// Has the loop tell of `modes`. Its observers find out for themselves that the queue is no more.
    private func observe(_ modes: [RunLoop.Mode]) {
        let other = otherObserver ?? makeObserver()
        otherObserver = other
        observeCommonModes()
        for mode in modes where mode != .common { loop.add(other, forMode: mode) }
    }

    @discardableResult
    private func observeCommonModes() -> RunLoop.Observer {
        if let commonObserver { return commonObserver }
        let observer = makeObserver()
        commonObserver = observer
        loop.add(observer, forMode: .common)
        return observer
    }

    /// After all other observers: what they enqueue is not left behind.
    private func makeObserver() -> RunLoop.Observer {
        RunLoop.Observer(for: [.beforeTimers, .beforeWaiting, .exit], order: .max) {
            [weak self] observer, activity in
            guard let self else { return observer.invalidate() }
            self.reached(activity)
        }
    }

    private func reached(_ activity: RunLoop.Activities) {
        guard let mode = loop.currentMode else { return }
        var hasPosted = post(.asap, mode)
        guard activity == .beforeWaiting else { return }
        if !hasPosted { hasPosted = post(.whenIdle, mode) }
        // What has been posted may have given the loop something to do.
        if hasPosted { loop.wakeUp() }
    }

    /// Posts what waits, but not what is enqueued meanwhile. True if there was anything.
    private func post(_ style: PostingStyle, _ mode: RunLoop.Mode) -> Bool {
        let last = lastNumber
        var hasPosted = false
        while let notification = waiting[style]?.takeFirst(upTo: last, where: { isServed(mode, $0) }) {
            center.post(notification)
            hasPosted = true
        }
        return hasPosted
    }

    private func isServed(_ mode: RunLoop.Mode, _ modes: [RunLoop.Mode]) -> Bool {
        if modes.contains(mode) { return true }
        return modes.contains(.common) && loop.contains(observeCommonModes(), forMode: mode)
    }
}
