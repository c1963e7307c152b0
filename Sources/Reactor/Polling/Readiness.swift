import CReactorLibevent
import CReactorLinux
import Glibc

/// What a descriptor is watched for, or is ready for.
public struct Readiness: OptionSet, Sendable, Hashable {
    /// The bits, in this library's own order.
    public let rawValue: UInt8

    /// Makes a set from its bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// A read would not block: there are bytes, a connection to accept, an end of file, or an error to
    /// report.
    public static let readable = Readiness(rawValue: 1)

    /// A write would not block: there is room, or an error to report.
    public static let writable = Readiness(rawValue: 2)

    /// What poll(2) calls an exceptional condition (`POLLPRI`): a file of `/proc` or sysfs has changed, such as
    /// `/proc/self/mounts`; a video device has an event; TCP has urgent bytes.
    ///
    /// Some of these files tell a change once, to the first that asks: in a loop that another event loop hosts
    /// (``RunLoop/Hosting``), to the host, and the source is not called.
    public static let priority = Readiness(rawValue: 4)

    /// The peer has ended its output, or the connection (`POLLRDHUP`), though bytes before that may not have been read. It
    /// lasts: change the interest then, or cancel the source.
    public static let hangUp = Readiness(rawValue: 8)
}

extension Readiness {
    /// Signalled by the source's owner, whatever the kernel reports.
    static let marked = Readiness(rawValue: 128)

    /// What libevent does not watch for.
    static let conditions: Readiness = [.priority, .hangUp]

    /// The result of poll(2). An error or a broken connection counts as all members.
    init(poll events: CInt) {
        let broken = CInt(POLLERR | POLLHUP)
        var set: Readiness = []
        if events & (CInt(POLLIN) | broken) != 0 { set.insert(.readable) }
        if events & (CInt(POLLOUT) | broken) != 0 { set.insert(.writable) }
        if events & (CInt(POLLPRI) | broken) != 0 { set.insert(.priority) }
        if events & (CInt(EPOLLRDHUP.rawValue) | broken) != 0 { set.insert(.hangUp) }
        self = set
    }

    /// What to ask poll(2) for. Not ``priority``, which the answer may end.
    var pollEvents: CInt {
        (contains(.readable) ? CInt(POLLIN) : 0) | (contains(.writable) ? CInt(POLLOUT) : 0)
            | (contains(.hangUp) ? CInt(EPOLLRDHUP.rawValue) : 0)
    }

    /// What to ask epoll(7) for.
    var epollEvents: UInt32 { UInt32(pollEvents) | (contains(.priority) ? EPOLLPRI.rawValue : 0) }

    init(libevent events: Int16) {
        var set: Readiness = []
        if CInt(events) & EV_READ != 0 { set.insert(.readable) }
        if CInt(events) & EV_WRITE != 0 { set.insert(.writable) }
        self = set
    }
}
