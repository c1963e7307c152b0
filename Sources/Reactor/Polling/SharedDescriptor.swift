import CReactorLinux
package import Glibc
import Synchronization
import SystemPackage

/// A descriptor that several threads use, and that is closed only when none of them is using it.
///
/// So a number is never closed, and reused, during a call that uses it. Nor does a registration with epoll(7)
/// outlive the closing: the kernel keeps one while a duplicate of the descriptor is open, and removes it only
/// by the original number.
final class SharedDescriptor: Sendable {
    /// Twice the number of calls that are using the descriptor, plus one if it is closed.
    private let uses: Atomic<UInt32>
    private let descriptor: Atomic<CInt>
    private let isOwned: Atomic<Bool>
    private let registrations = Mutex(Registrations())
    private let owner = DescriptorOwner()
    private let process = ProcessIdentity.current

    /// Broadcast when the last use of a closed, borrowed descriptor ends.
    private static let lastUseEnded = EventCount()

    private struct Registrations {
        /// One for each registration.
        var epolls = SmallArray<Epoll>()
        var hasEnded = false
        var keptUntilClosed: (any AnyObject & Sendable)?
    }

    init(_ number: CInt, closesWhenDone: Bool) {
        uses = Atomic(0)
        descriptor = Atomic(number)
        isOwned = Atomic(closesWhenDone)
        if closesWhenDone { owner.take(number) }
    }

    /// Creates one without a descriptor, which adopts and owns one later.
    init() {
        uses = Atomic(0)
        descriptor = Atomic(-1)
        isOwned = Atomic(true)
    }

    deinit { if number >= 0 { close() } }

    /// The descriptor's number; -1 until one is adopted.
    var number: CInt { descriptor.load(ordering: .acquiring) }

    /// Whether ``close()`` closes the descriptor, too.
    var closesWhenDone: Bool {
        get { isOwned.load(ordering: .relaxed) }
        set {
            let isChanged = isOwned.exchange(newValue, ordering: .relaxed) != newValue
            guard isChanged, number >= 0 else { return }
            if newValue { owner.take(number) } else { owner.release(number) }
        }
    }

    /// Adopts the descriptor, and closes it if ``close()`` has been called already.
    func adopt(_ number: CInt) {
        if closesWhenDone { owner.take(number) }
        descriptor.store(number, ordering: .sequentiallyConsistent)
        if uses.load(ordering: .sequentiallyConsistent) == 1 { closeNow() }
    }

    /// Calls `body` with the descriptor's number, which stays open meanwhile. Throws `badFileDescriptor`
    /// before a descriptor is adopted, and after the closing.
    func use<Result>(_ body: (CInt) throws(Errno) -> Result) throws(Errno) -> Result {
        let before = uses.add(2, ordering: .acquiring).oldValue
        defer { endUse() }
        let number = number
        guard before & 1 == 0, number >= 0 else { throw .badFileDescriptor }
        return try body(number)
    }

    /// Refuses further uses, and closes the descriptor if it is owned. One that is borrowed belongs to its owner
    /// again when this returns: calls that use it have ended. Waits have been ended before; a read or a write
    /// that is in progress is waited for, which may take as long as its disk, or its device, does.
    ///
    /// In a child of fork(2) it takes no lock and waits for no call: the registrations are the parent's, and the
    /// calls that were in progress do not exist in the child.
    func close() {
        let isInherited = !process.isCurrent
        if !isInherited { endRegistrations() }
        let before = uses.bitwiseOr(1, ordering: .sequentiallyConsistent).oldValue
        if before == 0 || isInherited { closeNow() } else if !closesWhenDone { waitForUses() }
    }

    private func waitForUses() {
        Self.lastUseEnded.wait { uses.load(ordering: .sequentiallyConsistent) <= 1 ? () : nil }
    }

    /// Keeps `object` until the descriptor is closed, and every duplicate that is made of it from now on.
    func keepUntilClosed(_ object: any AnyObject & Sendable) {
        registrations.withLock { $0.keptUntilClosed = object }
    }

    private var keptUntilClosed: (any AnyObject & Sendable)? { registrations.withLock { $0.keptUntilClosed } }

    private func makeOwned(_ number: CInt, keeping object: (any AnyObject & Sendable)?) -> SharedDescriptor {
        let owned = SharedDescriptor(number, closesWhenDone: true)
        if let object { owned.keepUntilClosed(object) }
        return owned
    }

    /// Moves the descriptor to a new object, and refuses further uses here; nil if it is in use, or is not to be closed.
    func move() -> SharedDescriptor? {
        let object = keptUntilClosed
        return release().map { makeOwned($0, keeping: object) }
    }

    /// Gives the descriptor to the caller, and refuses further uses; nil if it is in use, or is not to be
    /// closed.
    func release() -> CInt? {
        guard closesWhenDone else { return nil }
        endRegistrations()
        guard uses.bitwiseOr(1, ordering: .sequentiallyConsistent).oldValue == 0 else { return nil }
        let number = descriptor.exchange(-1, ordering: .sequentiallyConsistent)
        guard number >= 0 else { return nil }
        owner.release(number)
        dropKept()
        return number
    }

    private func endUse() {
        // The last call closes. One that began after the closing has found no number.
        if uses.subtract(2, ordering: .sequentiallyConsistent).newValue == 1 { closeNow() }
    }

    /// Idempotent: also called by uses that end after the closing.
    private func closeNow() {
        let number = descriptor.exchange(-1, ordering: .sequentiallyConsistent)
        defer { if number >= 0 { dropKept() } }
        guard closesWhenDone else { return Self.lastUseEnded.broadcast() }
        if number >= 0 { owner.close(number) }
    }

    /// Releases what is kept until the descriptor is closed. A child of fork(2) must not take the lock.
    private func dropKept() {
        guard process.isCurrent else { return }
        let object = registrations.withLock { $0.keptUntilClosed.take() }
        withExtendedLifetime(object) {}
    }
}

// MARK: - Registrations

extension SharedDescriptor {
    /// Registers the descriptor with `epoll`, on a loop's thread. Throws `badFileDescriptor` once it is
    /// closed.
    func beginRegistration(with epoll: Epoll, _ register: () throws(Errno) -> Void) throws(Errno) {
        try registrations.withLock { (registrations) throws(Errno) in
            if registrations.hasEnded { throw .badFileDescriptor }
            try register()
            registrations.epolls.append(epoll)
        }
    }

    /// Ends the registration on that thread. Returns false if closing had removed the descriptor from the
    /// epoll before.
    func endRegistration(with epoll: Epoll, _ deregister: () -> Void) -> Bool {
        registrations.withLock { registrations in
            deregister()
            return registrations.epolls.removeFirst { $0 === epoll }
        }
    }

    /// Ends all registrations, from any thread, and allows no more. The number is still the descriptor's.
    private func endRegistrations() {
        registrations.withLock { registrations in
            let number = number
            registrations.epolls.each { $0.remove(number) }
            (registrations.epolls, registrations.hasEnded) = (SmallArray(), true)
        }
    }
}

// MARK: - System calls

extension SharedDescriptor {
    /// Moves the file offset, and returns the new one (lseek(2)).
    func seek(to offset: Int, from whence: CInt) throws(Errno) -> Int {
        try use { (number) throws(Errno) in try SystemCall.make { lseek(number, offset, whence) } }
    }

    /// Whether a read or a write would not block now.
    func isReady(for events: CInt) -> Bool { self.events(among: events) != 0 }

    /// Those of `events` that poll(2) reports now, and errors.
    func events(among events: CInt) -> CInt { (try? poll(events)) ?? 0 }

    /// Whether this is a FIFO that no process has opened for writing yet. A read of it returns 0, as at the end.
    var awaitsFirstWriter: Bool {
        guard isPipe else { return false }
        return ((try? poll(CInt(POLLIN))) ?? CInt(POLLHUP)) & CInt(POLLHUP) == 0
    }

    private func poll(_ events: CInt) throws(Errno) -> CInt {
        try use { (number) throws(Errno) in try SystemCall.poll(number, for: events) }
    }

    /// The result of fstat(2).
    func status() throws(Errno) -> stat {
        try use { (number) throws(Errno) in try FileStatus.of(number) }
    }

    /// Whether this is the read end of a full pipe.
    ///
    /// To find out, this opens the pipe for writing for a moment. It does so only while the pipe has bytes and another writer,
    /// so a reader cannot miss the end of its input.
    var isFullPipe: Bool {
        guard isPipe, events(among: CInt(POLLIN)) == CInt(POLLIN) else { return false }
        let isFull = try? use { (number) throws(Errno) in
            let writer = try Self.reopen(number, O_WRONLY)
            defer { Glibc.close(writer) }
            return try SystemCall.poll(writer, for: CInt(POLLOUT)) == 0
        }
        return isFull ?? false
    }

    var isPipe: Bool { (try? status())?.fileType == S_IFIFO }

    /// The file status flags (fcntl(2), `F_GETFL`); nil once it is closed.
    private var flags: CInt? {
        try? use { (number) throws(Errno) in try SystemCall.make { fcntl(number, F_GETFL) } }
    }

    /// Throws `badFileDescriptor` if the file was opened for the other direction, or only to name it (`O_PATH`).
    func requireAccess(_ access: CInt) throws(Errno) {
        guard let flags, flags & SystemCall.pathOnly == 0, [access, O_RDWR].contains(flags & O_ACCMODE) else {
            throw .badFileDescriptor
        }
    }

    /// Whether reads and writes return when they would block (`O_NONBLOCK`).
    var isNonBlocking: Bool { flags.map { $0 & O_NONBLOCK != 0 } ?? true }

    /// Whether each write of a pipe is a packet (`O_DIRECT`). Opened again, it would be a pipe of bytes.
    private var hasPackets: Bool { flags.map { $0 & reactor_o_direct != 0 } ?? false }

    /// Whether the file offset can be set: the file is regular, and `O_APPEND` does not override the offset of a writer.
    func isSeekable(forWriting isWritten: Bool) -> Bool {
        guard (try? status())?.fileType == S_IFREG, let flags else { return false }
        return !isWritten || flags & O_APPEND == 0
    }

    /// Another descriptor of the same open file; nil if the kernel refuses one.
    func duplicate() -> SharedDescriptor? {
        owned { (number) throws(Errno) in try SystemCall.duplicate(number) }
    }

    /// The same pipe, opened again for reading without blocking; nil if it cannot be. Readiness is asked of this one: a FIFO
    /// that is opened again after its last writer has closed it reports no hang-up.
    func reopenedForReading() -> SharedDescriptor? {
        guard isPipe, !hasPackets else { return nil }
        return owned { (number) throws(Errno) in try Self.reopen(number, O_RDONLY) }
    }

    /// The same pipe or terminal, opened again for writing without blocking; nil if it cannot be, and for the master of a
    /// pseudo-terminal: opening that again would make a new terminal.
    func reopenedForWriting() -> SharedDescriptor? {
        var name = [CChar](repeating: 0, count: 32)
        let isPipe = isPipe && !hasPackets
        return owned { (number) throws(Errno) in
            let isTerminal = unsafe isatty(number) != 0 && ptsname_r(number, &name, 32) != 0
            guard isPipe || isTerminal else { throw .notSupported }
            return try Self.reopen(number, O_WRONLY)
        }
    }

    private static func reopen(_ number: CInt, _ access: CInt) throws(Errno) -> CInt {
        // Another thread may have descriptors of its own (unshare(2)).
        let path = FilePath("/proc/thread-self/fd/\(number)")
        return try SystemCall.open(path, access | O_NONBLOCK | O_NOCTTY)
    }

    private func owned(_ open: (CInt) throws(Errno) -> CInt) -> SharedDescriptor? {
        try? use { (number) throws(Errno) in makeOwned(try open(number), keeping: keptUntilClosed) }
    }
}

extension stat {
    /// One of the `S_IF` constants.
    package var fileType: mode_t { st_mode & S_IFMT }
}
