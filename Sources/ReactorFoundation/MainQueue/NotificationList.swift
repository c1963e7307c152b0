import Foundation
import Reactor

/// Notifications that wait to be posted, in their order. Pure: it posts nothing.
struct NotificationList {
    private struct Entry {
        let notification: Notification
        let modes: [RunLoop.Mode]
        let number: Int
    }

    private var entries: [Entry] = []

    mutating func append(_ notification: Notification, _ modes: [RunLoop.Mode], number: Int) {
        entries.append(Entry(notification: notification, modes: modes, number: number))
    }

    /// The first notification whose modes will do, of those up to a number.
    mutating func takeFirst(
        upTo last: Int, where isServed: ([RunLoop.Mode]) -> Bool
    ) -> Notification? {
        guard let index = entries.firstIndex(where: { $0.number <= last && isServed($0.modes) }) else {
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
