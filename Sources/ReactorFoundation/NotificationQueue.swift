public import Foundation
public import Reactor

/// A queue that posts notifications when its thread's run loop ends a pass, or is about to wait.
///
/// Replaces Foundation's class, whose queues depend on Foundation's run loop. A queue belongs to the thread
/// that created it; every thread has a ``default`` one. Notifications are posted first in, first out, those
/// of ``PostingStyle/asap`` before those of ``PostingStyle/whenIdle``. (Foundation on Linux posts idle
/// notifications first, and each style last in, first out.) Pending notifications do not keep a loop running.
///
/// - Precondition: Every method is called on the queue's own thread.
open class NotificationQueue: NSObject {
    /// When to post a notification. The raw values are Cocoa's.
    public enum PostingStyle: UInt, Sendable {
        /// When the loop is about to wait and no ``asap`` notifications are pending.
        case whenIdle = 1
        /// At the end of the loop's current pass, or at the beginning of the next.
        case asap = 2
        /// Immediately, after coalescing.
        case now = 3
    }

    /// Which pending notifications a new one replaces.
    public struct NotificationCoalescing: OptionSet, Sendable {
        /// The bits, which are Cocoa's.
        public let rawValue: UInt

        /// Creates a set from its bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// Replaces none.
        public static let none: NotificationCoalescing = []
        /// Replaces those with the same name; combined with ``onSender``, those with the same name and
        /// sender.
        public static let onName = NotificationCoalescing(rawValue: 1)
        /// Replaces those with the same sender: the same object, or an equal value.
        public static let onSender = NotificationCoalescing(rawValue: 2)
    }

    private let center: NotificationCenter
    private let loop = RunLoop.current
    private var pending: [PostingStyle: PendingNotifications] = [:]
    private var lastNumber = 0
    /// Added to the common modes. A mode is a common mode if the loop has this observer in it.
    private var commonObserver: RunLoop.Observer?
    /// Added to the other modes that notifications have named.
    private var otherObserver: RunLoop.Observer?

    /// Creates a queue of the calling thread that posts to `notificationCenter`.
    public init(notificationCenter: NotificationCenter) {
        center = notificationCenter
        super.init()
    }

    /// The calling thread's queue, which posts to the default center and is released when the thread ends.
    open class var `default`: NotificationQueue {
        let key = "ReactorFoundation.NotificationQueue"
        let values = Thread.current.threadDictionary
        if let queue = values[key] as? NotificationQueue { return queue }
        let queue = NotificationQueue(notificationCenter: .default)
        values[key] = queue
        return queue
    }

    /// Enqueues `notification` for the default mode, replacing pending ones with the same name and sender.
    open func enqueue(_ notification: Notification, postingStyle: PostingStyle) {
        enqueue(
            notification, postingStyle: postingStyle, coalesceMask: [.onName, .onSender], forModes: nil)
    }

    /// Enqueues `notification`, or posts it immediately with the style ``PostingStyle/now``.
    ///
    /// - Parameters:
    ///   - notification: The notification, which is retained until it is posted or dequeued.
    ///   - postingStyle: When to post it.
    ///   - coalesceMask: Which pending notifications, of any style, to dequeue first.
    ///   - modes: The modes in which to post it: the default mode for nil, and all common modes for
    ///     `RunLoop.Mode.common`. With the style ``PostingStyle/now``, a notification is dropped if the
    ///     loop is running in another mode, and posted if the loop is not running. If the list is empty, the
    ///     notification is dropped.
    open func enqueue(
        _ notification: Notification, postingStyle: PostingStyle, coalesceMask: NotificationCoalescing,
        forModes modes: [RunLoop.Mode]?
    ) {
        let modes = modes ?? [.default]
        dequeueNotifications(matching: notification, coalesceMask: coalesceMask)
        guard !modes.isEmpty else { return }
        guard postingStyle != .now else {
            if let mode = loop.currentMode, !includes(mode, in: modes) { return }
            return center.post(notification)
        }
        observe(modes)
        lastNumber += 1
        pending[postingStyle, default: PendingNotifications()].append(notification, modes, number: lastNumber)
    }

    /// Removes the pending notifications that match `notification` in everything that `coalesceMask` names.
    /// An empty mask removes none.
    open func dequeueNotifications(matching notification: Notification, coalesceMask: NotificationCoalescing)
    {
        loop.requireCurrent("A NotificationQueue must be used")
        for style in pending.keys { pending[style]?.remove(matching: notification, coalesceMask) }
    }
}

// MARK: - On the loop

extension NotificationQueue {
    /// Observes the loop in `modes`. The observers outlive the queue, and invalidate themselves when it is
    /// gone.
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

    /// Ordered after all other observers, so that what they enqueue is posted in the same pass.
    private func makeObserver() -> RunLoop.Observer {
        RunLoop.Observer(for: [.beforeTimers, .beforeWaiting, .exit], order: .max) {
            [weak self] observer, activity in
            guard let self else { return observer.invalidate() }
            self.postPending(at: activity)
        }
    }

    private func postPending(at activity: RunLoop.Activities) {
        guard let mode = loop.currentMode else { return }
        var hasPosted = post(.asap, mode)
        guard activity == .beforeWaiting else { return }
        if !hasPosted { hasPosted = post(.whenIdle, mode) }
        // The notifications' observers may have given the loop work to do before it waits.
        if hasPosted { loop.wakeUp() }
    }

    /// Posts what is pending, except what is enqueued during this call. Returns whether it posted anything.
    private func post(_ style: PostingStyle, _ mode: RunLoop.Mode) -> Bool {
        let last = lastNumber
        var hasPosted = false
        while let notification = pending[style]?.takeFirst(upTo: last, where: { includes(mode, in: $0) }) {
            center.post(notification)
            hasPosted = true
        }
        return hasPosted
    }

    /// Whether `modes` has `mode`, or has the common modes and `mode` is one of them.
    private func includes(_ mode: RunLoop.Mode, in modes: [RunLoop.Mode]) -> Bool {
        if modes.contains(mode) { return true }
        return modes.contains(.common) && loop.contains(observeCommonModes(), forMode: mode)
    }
}

// MARK: - Pending notifications

/// The pending notifications of one posting style, in order.
private struct PendingNotifications {
    private struct Entry {
        let notification: Notification
        let modes: [RunLoop.Mode]
        let number: Int
    }

    private var entries: [Entry] = []

    mutating func append(_ notification: Notification, _ modes: [RunLoop.Mode], number: Int) {
        entries.append(Entry(notification: notification, modes: modes, number: number))
    }

    /// Removes and returns the first notification that is numbered up to `last` and whose modes satisfy
    /// `predicate`.
    mutating func takeFirst(
        upTo last: Int, where predicate: ([RunLoop.Mode]) -> Bool
    ) -> Notification? {
        guard let index = entries.firstIndex(where: { $0.number <= last && predicate($0.modes) }) else {
            return nil
        }
        return entries.remove(at: index).notification
    }

    mutating func remove(matching pattern: Notification, _ mask: NotificationQueue.NotificationCoalescing) {
        guard !mask.isDisjoint(with: [.onName, .onSender]) else { return }
        entries.removeAll { entry in
            if mask.contains(.onName), entry.notification.name != pattern.name { return false }
            return !mask.contains(.onSender) || Self.isSame(entry.notification.object, pattern.object)
        }
    }

    /// Whether two senders are the same object, or equal values.
    private static func isSame(_ left: Any?, _ right: Any?) -> Bool {
        guard let left, let right else { return left == nil && right == nil }
        if type(of: left) is AnyClass || type(of: right) is AnyClass {
            return (left as AnyObject) === (right as AnyObject)
        }
        guard let left = left as? AnyHashable, let right = right as? AnyHashable else { return false }
        return left == right
    }
}
