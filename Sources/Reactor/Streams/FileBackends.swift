import CReactorLinux
import Glibc
import Synchronization
import SystemPackage

/// What a file turns out to be when it is opened.
enum FileKind {
    /// Always "ready", and as slow as its disk: moved off the loop's thread.
    case regular
    /// Not regular, but epoll does not take it: a device such as /dev/null or /dev/zero.
    case unwatchable
    /// A pipe, FIFO, terminal or device that the kernel tells of.
    case watchable
    case socket

    init(of holder: DescriptorHolder) throws(Errno) {
        self = try holder.use { (number) throws(Errno) in
            var status = stat()
            try SystemCall.make { unsafe fstat(number, &status) }
            switch status.st_mode & S_IFMT {
            case S_IFDIR: throw .isDirectory
            case S_IFREG: return .regular
            case S_IFSOCK: return .socket
            default: return reactor_epoll_takes(number) ? .watchable : .unwatchable
            }
        }
    }
}

/// Where a file comes from, and what it is used by.
struct FileOrigin {
    /// The path, and the flags to open it with; nil for a descriptor that was given.
    private let path: (FilePath, flags: CInt)?
    let holder: DescriptorHolder

    init(_ path: FilePath, _ flags: CInt) {
        self.path = (path, flags)
        holder = DescriptorHolder()
    }

    init(_ holder: DescriptorHolder) {
        path = nil
        self.holder = holder
    }

    /// Opens the file, and finds out what it is.
    func open() throws(Errno) -> FileKind {
        guard let (path, flags) = path else { return try FileKind(of: holder) }
        // Non-blocking, so that a FIFO opens at once; this file description is nobody else's.
        let number = try SystemCall.make {
            let flags = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
            return unsafe path.withPlatformString { unsafe Glibc.open($0, flags, 0o666) }
        }
        holder.adopt(number)
        do throws(Errno) { return try FileKind(of: holder) } catch {
            holder.close()
            throw error
        }
    }

    var isAppending: Bool { path.map { $0.flags & O_APPEND != 0 } ?? false }
}

/// A file to be read, by path or descriptor; what kind of file it is shows when it is opened.
final class FileInput: InputBackend {
    private struct State {
        var inner: (any InputBackend)?
        /// Where to begin, if that was said before opening.
        var offset: Int?
    }

    private let origin: FileOrigin
    private let state = Mutex(State())
    /// What reads a file that the kernel tells of: found without a lock, as each read answers an event.
    private let watched: DescriptorInput
    private let isWatched = Atomic(false)

    init(_ origin: FileOrigin) {
        self.origin = origin
        watched = DescriptorInput(origin.holder)
    }

    private var inner: (any InputBackend)? { state.withLock { $0.inner } }

    func open(for engine: StreamEngine) throws(Errno) {
        let (kind, holder) = (try origin.open(), origin.holder)
        let inner: any InputBackend
        switch kind {
        case .watchable:
            isWatched.store(true, ordering: .releasing)
            inner = watched
        case .socket: inner = SocketInput(SocketChannel(holder, only: .input))
        case .regular, .unwatchable: inner = try ReadAheadInput(holder, isSeekable: kind == .regular)
        }
        try inner.open(for: engine)
        let offset = state.withLock { state in
            state.inner = inner
            return state.offset
        }
        if let offset { _ = inner.setProperty(offset, .fileCurrentOffsetKey) }
    }

    func close() throws(Errno) {
        try inner?.close()
        origin.holder.close()
    }

    var descriptor: DescriptorHolder? { inner?.descriptor }

    var refusal: (any Error)? { inner?.refusal }

    var isReadOffLoop: Bool { inner?.isReadOffLoop ?? false }

    var expectedByteCount: Int? { inner?.expectedByteCount }

    func isReady() -> Bool { inner?.isReady() ?? false }

    func prepare() -> Prospect { inner?.prepare() ?? .waiting }

    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        if isWatched.load(ordering: .acquiring) { return try unsafe watched.read(into: buffer) }
        guard let inner else { throw .badFileDescriptor }
        return try unsafe inner.read(into: buffer)
    }

    func property(_ key: Stream.PropertyKey) -> Any? {
        inner?.property(key) ?? state.withLock { key == .fileCurrentOffsetKey ? $0.offset : nil }
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        if let inner { return inner.setProperty(value, key) }
        guard key == .fileCurrentOffsetKey, let offset = fileOffset(value) else { return false }
        state.withLock { $0.offset = offset }
        return true
    }
}

/// A file to be written, by path or descriptor; what kind of file it is shows when it is opened.
final class FileOutput: OutputBackend {
    private struct State {
        var inner: (any OutputBackend)?
        /// Where to begin, if that was said before opening.
        var offset: Int?
    }

    private let origin: FileOrigin
    private let state = Mutex(State())

    init(_ origin: FileOrigin) { self.origin = origin }

    convenience init(_ path: FilePath, append: Bool) {
        self.init(FileOrigin(path, O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC)))
    }

    var inner: (any OutputBackend)? { state.withLock { $0.inner } }

    func open(for engine: StreamEngine) throws(Errno) {
        let (kind, holder) = (try origin.open(), origin.holder)
        let inner: any OutputBackend
        switch kind {
        case .watchable: inner = DescriptorOutput(holder)
        case .socket: inner = SocketOutput(SocketChannel(holder, only: .output))
        case .regular, .unwatchable: inner = WriteBehindOutput(holder)
        }
        try inner.open(for: engine)
        let offset = state.withLock { state in
            state.inner = inner
            return state.offset
        }
        if let offset { _ = inner.setProperty(offset, .fileCurrentOffsetKey) }
    }

    func close() throws(Errno) {
        defer { origin.holder.close() }
        try inner?.close()
    }

    var descriptor: DescriptorHolder? { inner?.descriptor }

    var refusal: (any Error)? { inner?.refusal }

    var readying: Readying { inner?.readying ?? .backend }

    func isReady() -> Bool { inner?.isReady() ?? false }

    func hasRoom(isScheduled: Bool) -> Bool { inner?.hasRoom(isScheduled: isScheduled) ?? false }

    func prepare() -> Prospect { inner?.prepare() ?? .waiting }

    func drain() throws(Errno) -> Drainage { try inner?.drain() ?? Drainage() }

    func shutDown() throws(Errno) {
        guard let inner else { throw .socketNotConnected }
        try inner.shutDown()
    }

    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        guard let inner else { throw .badFileDescriptor }
        return try unsafe inner.write(bytes, isScheduled: isScheduled)
    }

    func property(_ key: Stream.PropertyKey) -> Any? {
        inner?.property(key) ?? state.withLock { key == .fileCurrentOffsetKey ? $0.offset : nil }
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        if let inner, key != .fileCurrentOffsetKey { return inner.setProperty(value, key) }
        guard key == .fileCurrentOffsetKey, !origin.isAppending, let offset = fileOffset(value) else {
            return false
        }
        if let inner { return inner.setProperty(offset, key) }
        state.withLock { $0.offset = offset }
        return true
    }
}

/// A file offset, from whatever integer a client has put into a property.
func fileOffset(_ value: Any?) -> Int? {
    // Foundation's numbers are no integers, but can be cast to one.
    guard let integer = value as? any BinaryInteger ?? value as? Int else { return nil }
    return Int(exactly: integer).flatMap { $0 >= 0 ? $0 : nil }
}
