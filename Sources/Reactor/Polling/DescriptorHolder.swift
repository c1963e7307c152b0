import CReactorLinux
import Glibc
import Synchronization
import SystemPackage

/// A descriptor that several threads use, and that is closed only when none of them is using it.
///
/// So a number is never closed, and reused, under a call that is still using it. Nor does a registration with epoll(7)
/// outlive the closing: while a duplicate of the descriptor is open the kernel keeps the registration, and it can be
/// removed by the original number only.
final class DescriptorHolder: Sendable {
    /// How many are using the descriptor, twice, and one if it is closed.
    private let uses: Atomic<UInt32>
    private let descriptor: Atomic<CInt>
    private let isClosing: Atomic<Bool>
    private let watching = Mutex(Watching())

    private struct Watching {
        /// One for each registration.
        var epolls: [Epoll] = []
        var isOver = false
    }

    init(_ number: CInt, closesWhenDone: Bool) {
        uses = Atomic(0)
        descriptor = Atomic(number)
        isClosing = Atomic(closesWhenDone)
    }

    /// Makes a holder of a descriptor that is still to come, and will be closed when it is done with.
    init() {
        uses = Atomic(0)
        descriptor = Atomic(-1)
        isClosing = Atomic(true)
    }

    deinit { close() }

    /// The descriptor's number; -1 while it has not come.
    var number: CInt { descriptor.load(ordering: .acquiring) }

    /// Whether closing closes the descriptor itself.
    var closesWhenDone: Bool {
        get { isClosing.load(ordering: .relaxed) }
        set { isClosing.store(newValue, ordering: .relaxed) }
    }

    /// Takes the descriptor that was still to come; one that comes too late is closed.
    func adopt(_ number: CInt) {
        descriptor.store(number, ordering: .sequentiallyConsistent)
        if uses.load(ordering: .sequentiallyConsistent) == 1 { closeNow() }
    }

    /// Calls `body` with the descriptor's number, which stays open meanwhile; throws `badFileDescriptor` before it
    /// has come, and once it is closed.
    func use<Result>(_ body: (CInt) throws(Errno) -> Result) throws(Errno) -> Result {
        let before = uses.add(2, ordering: .acquiring).oldValue
        defer { endUse() }
        let number = number
        guard before & 1 == 0, number >= 0 else { throw .badFileDescriptor }
        return try body(number)
    }

    func close() {
        endWatching()
        if uses.bitwiseOr(1, ordering: .sequentiallyConsistent).oldValue == 0 { closeNow() }
    }

    /// Closes the holder, and moves the descriptor to another one; nil if it is in use, or not to be closed.
    func move() -> DescriptorHolder? { release().map { DescriptorHolder($0, closesWhenDone: true) } }

    /// Closes the holder, and gives the descriptor to the caller; nil if it is in use, or not to be closed.
    func release() -> CInt? {
        guard closesWhenDone else { return nil }
        endWatching()
        guard uses.bitwiseOr(1, ordering: .sequentiallyConsistent).oldValue == 0 else { return nil }
        let number = descriptor.exchange(-1, ordering: .sequentiallyConsistent)
        return number >= 0 ? number : nil
    }

    private func endUse() {
        // The last one out closes; a call that came too late is not the last one of anything.
        if uses.subtract(2, ordering: .sequentiallyConsistent).newValue == 1 { closeNow() }
    }

    /// Only once, though a late call may be followed by another.
    private func closeNow() {
        let number = descriptor.exchange(-1, ordering: .sequentiallyConsistent)
        if number >= 0, closesWhenDone { _ = Glibc.close(number) }
    }
}

// MARK: - Registrations

extension DescriptorHolder {
    /// Has a loop's thread register the descriptor with `epoll`; throws `badFileDescriptor` once it is closed.
    func beginWatch(by epoll: Epoll, _ register: () throws(Errno) -> Void) throws(Errno) {
        try watching.withLock { (watching) throws(Errno) in
            if watching.isOver { throw .badFileDescriptor }
            try register()
            watching.epolls.append(epoll)
        }
    }

    /// Has that thread end the registration, unless closing has done so.
    func endWatch(by epoll: Epoll, _ deregister: () -> Void) {
        watching.withLock { watching in
            deregister()
            if let index = watching.epolls.firstIndex(where: { $0 === epoll }) {
                watching.epolls.remove(at: index)
            }
        }
    }

    /// Ends all registrations, from any thread, and allows no more. The number is still the descriptor's.
    private func endWatching() {
        watching.withLock { watching in
            let number = number
            for epoll in watching.epolls { epoll.remove(number) }
            watching = Watching(epolls: [], isOver: true)
        }
    }
}

extension DescriptorHolder {
    /// Moves the file's offset, and returns where it is then (lseek(2)).
    func seek(to offset: Int, from whence: CInt) throws(Errno) -> Int {
        try use { (number) throws(Errno) in try SystemCall.make { lseek(number, offset, whence) } }
    }

    /// Whether a read or a write would not block now.
    func isReady(for events: CInt) -> Bool { self.events(among: events) != 0 }

    /// What poll(2) says now: those of `events` that are so, and errors.
    func events(among events: CInt) -> CInt { (try? poll(events)) ?? 0 }

    /// Whether this is a FIFO that nobody has opened for writing yet. Reading it finds an end, which is none.
    var awaitsFirstWriter: Bool {
        guard isPipe else { return false }
        return ((try? poll(CInt(POLLIN))) ?? CInt(POLLHUP)) & CInt(POLLHUP) == 0
    }

    private func poll(_ events: CInt) throws(Errno) -> CInt {
        try use { (number) throws(Errno) in
            var request = pollfd(fd: number, events: Int16(events), revents: 0)
            try SystemCall.make { unsafe Glibc.poll(&request, 1, 0) }
            return CInt(request.revents)
        }
    }
}

extension DescriptorHolder {
    /// Whether reads and writes return when they would block (`O_NONBLOCK`).
    var isNonBlocking: Bool {
        let flags = try? use { (number) throws(Errno) in try SystemCall.make { fcntl(number, F_GETFL) } }
        return flags.map { $0 & O_NONBLOCK != 0 } ?? true
    }

    var isPipe: Bool { fileType == S_IFIFO }

    private var fileType: mode_t? {
        var status = stat()
        let code = try? use { (number) throws(Errno) in try SystemCall.make { unsafe fstat(number, &status) }
        }
        return code == nil ? nil : status.st_mode & S_IFMT
    }

    /// Another descriptor of the same open file (fcntl(2), `F_DUPFD_CLOEXEC`); nil if there is none to be had.
    func duplicate() -> DescriptorHolder? {
        let number = try? use { (number) throws(Errno) in
            try SystemCall.make { fcntl(number, F_DUPFD_CLOEXEC, 0) }
        }
        return number.map { DescriptorHolder($0, closesWhenDone: true) }
    }

    /// The same pipe or terminal, opened once more and non-blocking; nil if that cannot be.
    func reopenedForWriting() -> DescriptorHolder? {
        let number = try? use { (number) throws(Errno) in
            try SystemCall.make { reactor_reopen_for_writing(number) }
        }
        return number.map { DescriptorHolder($0, closesWhenDone: true) }
    }
}
