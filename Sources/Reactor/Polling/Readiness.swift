import CReactorLibevent
import CReactorLinux
import Glibc

/// The events that a descriptor is watched for, or is ready for.
public struct Readiness: OptionSet, Sendable, Hashable {
    /// The bits, in this library's own order.
    public let rawValue: UInt8

    /// Creates a set from its bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// A read would not block: there are bytes, a connection to accept, an end of file, or an error to
    /// report.
    public static let readable = Readiness(rawValue: 1)

    /// A write would not block: there is room, or an error to report.
    public static let writable = Readiness(rawValue: 2)

    /// The peer of a socket sends no more: it has shut its output down, or the connection has ended (`POLLRDHUP`); also while
    /// bytes before that are unread. It may still receive. It lasts: change the interest then, or cancel the source.
    public static let peerEnded = Readiness(rawValue: 4)
}

extension Readiness {
    /// Signalled by the source's owner, whatever the kernel reports.
    static let marked = Readiness(rawValue: 128)

    /// The result of poll(2). An error or a broken connection counts as all members.
    init(poll events: CInt) {
        let broken = CInt(POLLERR | POLLHUP)
        var set: Readiness = []
        if events & (CInt(POLLIN) | broken) != 0 { set.insert(.readable) }
        if events & (CInt(POLLOUT) | broken) != 0 { set.insert(.writable) }
        if events & (CInt(EPOLLRDHUP.rawValue) | broken) != 0 { set.insert(.peerEnded) }
        self = set
    }

    /// The events to ask poll(2) for.
    var pollEvents: CInt {
        (contains(.readable) ? CInt(POLLIN) : 0) | (contains(.writable) ? CInt(POLLOUT) : 0)
            | (contains(.peerEnded) ? CInt(EPOLLRDHUP.rawValue) : 0)
    }

    init(libevent events: Int16) {
        var set: Readiness = []
        if CInt(events) & EV_READ != 0 { set.insert(.readable) }
        if CInt(events) & EV_WRITE != 0 { set.insert(.writable) }
        self = set
    }
}
