import CReactorLinux
import Glibc
import SystemPackage

/// A file by path or descriptor, whose kind shows when it is opened: then the backend for that kind takes its place.
final class UnopenedFile: StreamBackend {
    private struct State {
        /// Where to begin, if that was set.
        var offset: Int?
        var writeBufferSize = 0
    }

    let event: Stream.Event
    /// The path, and the flags to open it with; nil for a descriptor that was given.
    private let path: (FilePath, flags: CInt)?
    private let holder: DescriptorHolder
    private let state = Mutex(State())

    init(reading path: FilePath) {
        event = .hasBytesAvailable
        self.path = (path, O_RDONLY)
        holder = DescriptorHolder()
    }

    init(writing path: FilePath, append: Bool) {
        event = .hasSpaceAvailable
        self.path = (path, O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC))
        holder = DescriptorHolder()
    }

    init(reading holder: DescriptorHolder) {
        event = .hasBytesAvailable
        path = nil
        self.holder = holder
    }

    init(writing holder: DescriptorHolder) {
        event = .hasSpaceAvailable
        path = nil
        self.holder = holder
    }

    private var isWritten: Bool { event == .hasSpaceAvailable }

    func isReady() -> Bool { false }

    var failedOperation: IOError.Operation { .open }

    func close() throws(Errno) { holder.close() }

    // MARK: Opening

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        guard let (path, flags) = path else { return try openDescriptor(for: engine) }
        // Non-blocking, so that a FIFO opens at once; no one else has this open file description.
        let number = try SystemCall.make {
            let flags = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
            return unsafe path.withPlatformString { unsafe Glibc.open($0, flags, 0o666) }
        }
        holder.adopt(number)
        do throws(Errno) { return try openDescriptor(for: engine) } catch {
            holder.close()
            throw error
        }
    }

    private func openDescriptor(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        let backend = try backend(for: FileKind(of: holder))
        let (offset, size) = state.withLock { ($0.offset, $0.writeBufferSize) }
        if let offset, !backend.setProperty(offset, .fileCurrentOffsetKey) { throw .illegalSeek }
        if size > 0 { _ = backend.setProperty(size, .writeBufferSizeKey) }
        return try backend.open(for: engine)
    }

    private func backend(for kind: FileKind) throws(Errno) -> any StreamBackend {
        switch kind {
        case .watchable: isWritten ? DescriptorOutput(holder) : DescriptorInput(holder)
        case .socket where isWritten: SocketOutput(SocketConnection(holder, only: .output))
        case .socket: SocketInput(SocketConnection(holder, only: .input))
        case .regular, .unwatchable:
            isWritten ? WriteBehindOutput(holder) : try ReadAheadInput(holder, isSeekable: kind == .regular)
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
        guard let (path, flags) = path else { return holder.isSeekable(forWriting: isWritten) }
        var status = stat()
        let isKnown = unsafe path.withPlatformString { unsafe stat($0, &status) } == 0
        return flags & O_APPEND == 0 && (!isKnown || status.st_mode & S_IFMT == S_IFREG)
    }
}

/// What a file turns out to be when it is opened.
private enum FileKind {
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

extension DescriptorHolder {
    /// Whether the file's offset can be set: it is regular, and O_APPEND does not override the offset for a writer.
    func isSeekable(forWriting isWritten: Bool) -> Bool {
        let isSeekable = try? use { (number) throws(Errno) in
            var status = stat()
            try SystemCall.make { unsafe fstat(number, &status) }
            guard status.st_mode & S_IFMT == S_IFREG else { return false }
            let flags = try SystemCall.make { fcntl(number, F_GETFL) }
            return !isWritten || flags & O_APPEND == 0
        }
        return isSeekable ?? false
    }
}

/// The value of a property that is a size or an offset, from whatever integer a client has set.
func nonNegativeInteger(_ value: Any?) -> Int? {
    // Foundation's numbers are no integers, but can be cast to one.
    guard let integer = value as? any BinaryInteger ?? value as? Int else { return nil }
    return Int(exactly: integer).flatMap { $0 >= 0 ? $0 : nil }
}
