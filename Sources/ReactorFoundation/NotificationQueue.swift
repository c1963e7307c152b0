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
    private var pending = PendingNotifications()
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
        let modes = Set(modes ?? [.default])
        dequeueNotifications(matching: notification, coalesceMask: coalesceMask)
        guard !modes.isEmpty else { return }
        guard postingStyle != .now else {
            if let mode = loop.currentMode, !includes(mode, in: modes) { return }
            return center.post(notification)
        }
        observe(modes)
        pending.append(notification, postingStyle, modes)
    }

    /// Removes the pending notifications that match `notification` in everything that `coalesceMask` names.
    /// An empty mask removes none.
    open func dequeueNotifications(matching notification: Notification, coalesceMask: NotificationCoalescing)
    {
        loop.requireCurrent("A NotificationQueue must be used")
        // Released after the call: a sender's `deinit` may use the queue.
        let removed = pending.remove(matching: notification, coalesceMask)
        withExtendedLifetime(removed) {}
    }
}

// MARK: - On the loop

extension NotificationQueue {
    /// Observes the loop in `modes`. The observers outlive the queue, and invalidate themselves when it is
    /// gone.
    private func observe(_ modes: Set<RunLoop.Mode>) {
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
        var hasPosted = false
        for number in pending.numbers(style, where: { includes(mode, in: $0) }) {
            guard let removed = pending.remove(number) else { continue }
            center.post(removed.notification)
            hasPosted = true
        }
        return hasPosted
    }

    /// Whether `modes` has `mode`, or has the common modes and `mode` is one of them.
    private func includes(_ mode: RunLoop.Mode, in modes: Set<RunLoop.Mode>) -> Bool {
        if modes.contains(mode) { return true }
        return modes.contains(.common) && loop.contains(observeCommonModes(), forMode: mode)
    }
}

// MARK: - Pending notifications

/// The pending notifications of a queue, in order. Finds those that a new one replaces without comparing it
/// with all, and those for a mode without a look at each of the others.
///
/// Releases nothing of the client's in a call that mutates, since a sender's `deinit` may use the queue.
private struct PendingNotifications {
    /// The elements that were taken out, for the caller to release.
    struct Removed {
        let notification: Notification
        let keys: [CoalescingKey]
    }

    /// Decides when to post a notification.
    struct PostingTime: Hashable {
        let style: NotificationQueue.PostingStyle
        let modes: Set<RunLoop.Mode>
    }

    struct Entry {
        let notification: Notification
        let time: PostingTime
        let keys: [CoalescingKey]
    }

    /// By number. Numbers increase.
    private var entries: [Int: Entry] = [:]
    private var lastNumber = 0
    private var times: [PostingTime: Set<Int>] = [:]
    private var numbers: [CoalescingKey: Set<Int>] = [:]

    /// The numbers of `style` whose modes satisfy `predicate`, in order.
    func numbers(
        _ style: NotificationQueue.PostingStyle, where predicate: (Set<RunLoop.Mode>) -> Bool
    ) -> [Int] {
        var found: [Int] = []
        for (time, members) in times where time.style == style && predicate(time.modes) {
            found += members
        }
        found.sort()
        return found
    }

    mutating func append(
        _ notification: Notification, _ style: NotificationQueue.PostingStyle, _ modes: Set<RunLoop.Mode>
    ) {
        lastNumber += 1
        let (keys, time) = (CoalescingKey.all(of: notification), PostingTime(style: style, modes: modes))
        entries[lastNumber] = Entry(notification: notification, time: time, keys: keys)
        times[time, default: []].insert(lastNumber)
        for key in keys { numbers[key, default: []].insert(lastNumber) }
    }

    /// Removes the notifications that match `pattern` in everything that `mask` names.
    mutating func remove(
        matching pattern: Notification, _ mask: NotificationQueue.NotificationCoalescing
    ) -> [Removed] {
        guard let key = CoalescingKey(pattern, mask), let matching = numbers[key] else { return [] }
        return matching.compactMap { remove($0) }
    }

    /// Removes a notification; nil if it is not pending any more.
    mutating func remove(_ number: Int) -> Removed? {
        guard let entry = entries.removeValue(forKey: number) else { return nil }
        times[entry.time]?.remove(number)
        if times[entry.time]?.isEmpty == true { times[entry.time] = nil }
        var keys = entry.keys
        for key in entry.keys {
            numbers[key]?.remove(number)
            // The dictionary's key may be an earlier notification's, whose equal sender holds other objects.
            guard let index = numbers.index(forKey: key), numbers[index].value.isEmpty else { continue }
            keys.append(numbers.remove(at: index).key)
        }
        return Removed(notification: entry.notification, keys: keys)
    }
}

/// The common part of notifications that replace each other.
private struct CoalescingKey: Hashable {
    /// Senders are the same if they are the same object, or equal values.
    private enum Sender: Hashable {
        case none
        case object(ObjectIdentifier)
        case value(AnyHashable)

        /// Nil for a value that cannot be compared, which is the same as no other.
        init?(_ sender: Any?) {
            guard let sender else {
                self = .none
                return
            }
            if type(of: sender) is AnyClass {
                self = .object(ObjectIdentifier(sender as AnyObject))
            } else if let value = sender as? AnyHashable {
                self = .value(value)
            } else {
                return nil
            }
        }
    }

    private let name: Notification.Name?
    private let sender: Sender?

    /// Nil if `mask` names nothing, or a sender that cannot be compared.
    init?(_ notification: Notification, _ mask: NotificationQueue.NotificationCoalescing) {
        guard !mask.isDisjoint(with: [.onName, .onSender]) else { return nil }
        name = mask.contains(.onName) ? notification.name : nil
        sender = mask.contains(.onSender) ? Sender(notification.object) : nil
        if mask.contains(.onSender), sender == nil { return nil }
    }

    /// The keys by which later notifications may find `notification`.
    static func all(of notification: Notification) -> [CoalescingKey] {
        let masks: [NotificationQueue.NotificationCoalescing] = [.onName, .onSender, [.onName, .onSender]]
        return masks.compactMap { CoalescingKey(notification, $0) }
    }
}
