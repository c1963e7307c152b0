import CReactorGLib
import CReactorLinux
import Glibc
import Reactor
import SystemPackage

/// The descriptors of a GLib main context, in an epoll(7) that is readable when one of them is ready.
struct PolledDescriptors: ~Copyable {
    private let epoll: OwnedDescriptor
    private var records: [GPollFD]
    /// The descriptors in the epoll.
    private var watched: [CInt] = []

    /// Creates an epoll that watches nothing until ``watch(upTo:)``.
    init() throws(Errno) {
        epoll = try OwnedDescriptor.epoll()
        records = []
    }

    /// Creates an epoll in place of another, with its descriptors and their events.
    init(replacing other: borrowing PolledDescriptors) throws(Errno) {
        epoll = try OwnedDescriptor.epoll()
        records = other.records
    }

    var descriptor: FileDescriptor { FileDescriptor(rawValue: epoll.number) }

    /// Gets the descriptors of sources of `priority` or a higher one.
    ///
    /// - Returns: For how many milliseconds to wait; -1 for no limit.
    mutating func query(_ context: MainContext, _ priority: gint) -> gint {
        var timeout: gint = 0
        while true {
            let capacity = records.count
            let count = context.query(priority, &timeout, &records)
            if count <= capacity {
                records.removeLast(capacity - count)
                return timeout
            }
            records += Array(repeating: GPollFD(), count: count - capacity)
        }
    }

    /// Has the epoll watch the descriptors, and no others.
    ///
    /// Each time: a descriptor may have been closed, and its number may be another file's.
    /// - Parameter timeout: For how many milliseconds to wait; -1 for no limit.
    /// - Returns: The same, or less if the epoll does not watch all descriptors.
    mutating func watch(upTo timeout: gint) -> gint {
        var limit = timeout
        for record in records {
            let code = register(record)
            guard code != 0 else { continue }
            // For poll(2), a regular file (EPERM) and what is not open (EBADF) are always ready.
            let retry = code == EPERM || code == EBADF ? 0 : Self.retryMilliseconds
            limit = limit < 0 ? retry : min(limit, retry)
        }
        if !watched.elementsEqual(records, by: { $0 == $1.fd }) { removeOthers() }
        return limit
    }

    /// Watches what is open as the descriptor now, which may not be what was watched; returns 0 or the value of errno.
    private func register(_ record: GPollFD) -> CInt {
        let events = UInt32(record.events)
        do throws(Errno) {
            do throws(Errno) {
                try SystemCall.control(epoll.number, EPOLL_CTL_MOD, record.fd, for: events)
            } catch .noSuchFileOrDirectory {
                try SystemCall.control(epoll.number, EPOLL_CTL_ADD, record.fd, for: events)
            }
            return 0
        } catch { return error.rawValue }
    }

    /// Nothing wakes the loop when the kernel has memory for a registration again.
    private static var retryMilliseconds: gint { 50 }

    private mutating func removeOthers() {
        let numbers = Set(records.map(\.fd))
        for number in watched where !numbers.contains(number) {
            epoll_ctl(epoll.number, EPOLL_CTL_DEL, number, nil)
        }
        watched = records.map(\.fd)
    }

    /// Asks the kernel which are ready, without waiting; true if any is.
    mutating func poll() -> Bool {
        for index in records.indices { records[index].revents = 0 }
        return unsafe g_poll(&records, guint(records.count), 0) > 0
    }

    /// Tells GLib what is ready; true if there is something to dispatch.
    mutating func check(_ context: MainContext, _ priority: gint) -> Bool {
        context.check(priority, &records)
    }
}
