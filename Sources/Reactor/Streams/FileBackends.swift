import Glibc
import Synchronization
import SystemPackage

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
        if let offset, !inner.setProperty(offset, .fileCurrentOffsetKey) { throw .illegalSeek }
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
        if let inner { return inner.property(key) }
        return key == .fileCurrentOffsetKey ? state.withLock { $0.offset } : nil
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        if let inner { return inner.setProperty(value, key) }
        guard key == .fileCurrentOffsetKey, let offset = fileOffset(value), origin.isSeekable(.reading) else {
            return false
        }
        state.withLock { $0.offset = offset }
        return true
    }
}

/// A file to be written, by path or descriptor; what kind of file it is shows when it is opened.
final class FileOutput: OutputBackend {
    private struct State {
        var inner: (any OutputBackend)?
        /// Where to begin, if that was said before opening; once closed, where writing has stopped.
        var offset: Int?
        var writeBufferSize = 0
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
        let (offset, size) = state.withLock { state in
            state.inner = inner
            return (state.offset, state.writeBufferSize)
        }
        if let offset, !inner.setProperty(offset, .fileCurrentOffsetKey) { throw .illegalSeek }
        if size > 0 { _ = inner.setProperty(size, .writeBufferSizeKey) }
    }

    func close() throws(Errno) {
        defer { origin.holder.close() }
        guard let inner else { return }
        // The descriptor tells no longer once it is closed.
        if let offset = inner.property(.fileCurrentOffsetKey) as? Int {
            state.withLock { $0.offset = offset }
        }
        try inner.close()
    }

    var descriptor: DescriptorHolder? { inner?.descriptor }

    var refusal: (any Error)? { inner?.refusal }

    var readying: Readying { inner?.readying ?? .backend }

    func isReady() -> Bool { inner?.isReady() ?? false }

    func checkRoom() throws(Errno) -> Room { try inner?.checkRoom() ?? .none }

    func prepare() -> Prospect { inner?.prepare() ?? .waiting }

    func flush(until deadline: Deadline) throws(Errno) { try inner?.flush(until: deadline) }

    func shutDown() throws(Errno) {
        guard let inner else { throw .socketNotConnected }
        try inner.shutDown()
    }

    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        guard let inner else { throw .badFileDescriptor }
        return try unsafe inner.write(bytes, isScheduled: isScheduled)
    }

    func property(_ key: Stream.PropertyKey) -> Any? {
        if let value = inner?.property(key) { return value }
        return state.withLock { state in
            switch key {
            case .fileCurrentOffsetKey: state.offset
            case .writeBufferSizeKey where state.inner == nil: state.writeBufferSize
            default: nil
            }
        }
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        if let inner, key != .fileCurrentOffsetKey { return inner.setProperty(value, key) }
        if key == .writeBufferSizeKey, let size = fileOffset(value) {
            state.withLock { $0.writeBufferSize = size }
            return true
        }
        guard key == .fileCurrentOffsetKey, let offset = fileOffset(value), origin.isSeekable(.writing) else {
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
