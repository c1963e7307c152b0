import Glibc
import SystemPackage

/// The backend of a stream that is created for a path or a descriptor. Opening it shows what that is, and returns the backend
/// for it.
final class UnopenedBackend: StreamBackend {
    private struct State {
        /// The offset to start at, if it was set.
        var offset: Int?
        var writeBufferSize = 0
    }

    let event: Stream.Event
    /// The path, and the flags to open it with; nil for a given descriptor.
    private let path: (FilePath, flags: CInt)?
    private let shared: SharedDescriptor
    /// How many bytes of a regular file may wait to be written.
    private let writeBehindLimit: Int
    private let endsAtHangUp: Bool
    let closesUnopened: Bool
    private let state = Mutex(State())

    private init(
        _ event: Stream.Event, _ path: (FilePath, flags: CInt)?,
        _ shared: SharedDescriptor = SharedDescriptor(),
        writeBehindLimit: Int = 0, endsAtHangUp: Bool = false, closesUnopened: Bool = false
    ) {
        (self.event, self.path, self.shared) = (event, path, shared)
        self.writeBehindLimit = writeBehindLimit
        (self.endsAtHangUp, self.closesUnopened) = (endsAtHangUp, closesUnopened)
    }

    convenience init(reading path: FilePath) { self.init(.hasBytesAvailable, (path, O_RDONLY)) }

    convenience init(
        writing path: FilePath, append: Bool, writeBehindLimit: Int = WriteBehindOutput.byteLimit
    ) {
        let flags = O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC)
        self.init(.hasSpaceAvailable, (path, flags), writeBehindLimit: writeBehindLimit)
    }

    /// - Parameters:
    ///   - endsAtHangUp: See ``DescriptorInput``.
    ///   - closesUnopened: See ``StreamBackend``.
    convenience init(
        reading shared: SharedDescriptor, endsAtHangUp: Bool = false, closesUnopened: Bool = false
    ) {
        self.init(
            .hasBytesAvailable, nil, shared, endsAtHangUp: endsAtHangUp, closesUnopened: closesUnopened)
    }

    convenience init(
        writing shared: SharedDescriptor, writeBehindLimit: Int = WriteBehindOutput.byteLimit,
        closesUnopened: Bool = false
    ) {
        self.init(
            .hasSpaceAvailable, nil, shared, writeBehindLimit: writeBehindLimit,
            closesUnopened: closesUnopened)
    }

    private var isWritten: Bool { event == .hasSpaceAvailable }

    func isReady() -> Bool { false }

    var failedOperation: IOError.Operation { .open }

    func close() throws(Errno) { shared.close() }

    // MARK: Opening

    /// Another thread may schedule the stream while this one opens it.
    func progress() -> Availability { .waiting }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        guard let (path, flags) = path else {
            try shared.requireAccess(isWritten ? O_WRONLY : O_RDONLY)
            return try openDescriptor(for: engine)
        }
        // Non-blocking, so that a FIFO opens at once. No other code shares the new open file description.
        shared.adopt(try SystemCall.open(path, flags | O_NONBLOCK | O_NOCTTY))
        do throws(Errno) { return try openDescriptor(for: engine) } catch {
            shared.close()
            throw error
        }
    }

    private func openDescriptor(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        let backend = try backend(for: FileKind(of: shared))
        let (offset, size) = state.withLock { ($0.offset, $0.writeBufferSize) }
        if let offset, !backend.setProperty(offset, .fileCurrentOffsetKey) { throw .illegalSeek }
        if size > 0 { _ = backend.setProperty(size, .writeBufferSizeKey) }
        return try backend.open(for: engine)
    }

    private func backend(for kind: FileKind) throws(Errno) -> any StreamBackend {
        switch kind {
        case .watchable:
            isWritten ? DescriptorOutput(shared) : DescriptorInput(shared, endsAtHangUp: endsAtHangUp)
        case .socket where isWritten: SocketOutput(SocketConnection(shared, only: .output))
        case .socket: SocketInput(SocketConnection(shared, only: .input))
        case .regular, .unwatchable:
            isWritten
                ? WriteBehindOutput(shared, limit: writeBehindLimit)
                : try FileInput(shared, isSeekable: kind == .regular)
        }
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? {
        state.withLock { state in
            switch key {
            case .fileCurrentOffsetKey: state.offset
            case .writeBufferSizeKey where isWritten: state.writeBufferSize
            default: nil
            }
        }
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        guard let number = nonNegativeInteger(value) else { return false }
        switch key {
        case .fileCurrentOffsetKey where mayBeSeekable: state.withLock { $0.offset = number }
        case .writeBufferSizeKey where isWritten: state.withLock { $0.writeBufferSize = number }
        default: return false
        }
        return true
    }

    /// A path that does not exist yet counts as a regular file's.
    private var mayBeSeekable: Bool {
        guard let (path, flags) = path else { return shared.isSeekable(forWriting: isWritten) }
        let status = try? FileStatus.of(path)
        return flags & O_APPEND == 0 && (status.map { $0.fileType == S_IFREG } ?? true)
    }
}

/// The kind of a file, found out by opening it.
private enum FileKind {
    /// Always ready, and as slow as its disk: read and written off the loop's thread.
    case regular
    /// Not regular, and refused by epoll: a device such as /dev/null or /dev/zero.
    case unwatchable
    /// A pipe, FIFO, terminal or device that epoll watches.
    case watchable
    case socket

    init(of shared: SharedDescriptor) throws(Errno) {
        switch try shared.status().fileType {
        case S_IFDIR: throw .isDirectory
        case S_IFREG: self = .regular
        case S_IFSOCK: self = .socket
        default:
            let isWatchable = try shared.use { (number) throws(Errno) in Epoll.supports(number) }
            self = isWatchable ? .watchable : .unwatchable
        }
    }
}

/// A property's value as a size or an offset, from any type of integer.
func nonNegativeInteger(_ value: Any?) -> Int? {
    // Foundation's number types don't conform to BinaryInteger, but can be cast to Int.
    guard let integer = value as? any BinaryInteger ?? value as? Int else { return nil }
    return Int(exactly: integer).flatMap { $0 >= 0 ? $0 : nil }
}
