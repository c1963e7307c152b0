public import SystemPackage

/// A stream of bytes to read: from a file, a descriptor, memory, or the output half of a bound pair.
///
/// An open stream on a run loop delivers ``Stream/Event/hasBytesAvailable`` to its delegate, which reads. A
/// task reads without a delegate: ``chunks``, ``lines``, ``bytes``, or ``read(exactly:timeout:)`` and its like.
/// Regular files, and devices that epoll(7) refuses, are read ahead on a Dispatch queue, so that a slow disk
/// does not block the loop's thread.
///
/// ```swift
/// final class Counter: StreamDelegate {
///     func stream(_ stream: Stream, handle event: Stream.Event) {
///         guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
///         let bytes = input.read(upTo: 4096)
///         print("\(bytes.count) bytes")
///     }
/// }
/// let input = InputStream(descriptor: .standardInput)
/// let counter = Counter()
/// input.delegate = counter
/// input.schedule(in: .current, forMode: .default)
/// input.open()
/// ```
open class InputStream: Stream {
    // No initializer is a convenience initializer, so that a subclass without its own inherits them all.

    override init(_ engine: StreamEngine) { super.init(engine) }

    init(backend: any InputBackend) { super.init(StreamEngine(backend)) }

    /// An empty stream, for a subclass that overrides what it needs.
    public init() { super.init(StreamEngine(MemoryInput([]))) }

    /// A stream of a copy of `data`: of Foundation's `Data`, or of any other collection of bytes.
    public init(data: some Collection<UInt8>) { super.init(StreamEngine(MemoryInput(data))) }

    /// A stream of the file at `path`: regular, FIFO, terminal or device. ``Stream/open()`` opens it, and
    /// fails if it is missing, a directory, or not readable.
    ///
    /// - Parameter path: The file, relative to the working directory when the stream is opened.
    public init(path: FilePath) {
        super.init(StreamEngine(UnopenedBackend(reading: path), subject: "\(path)"))
    }

    /// As ``init(path:)``; never nil, optional as in Cocoa.
    public init?(fileAtPath path: String) {
        super.init(StreamEngine(UnopenedBackend(reading: FilePath(path)), subject: path))
    }

    /// A stream of the bytes that `descriptor` reads: a pipe, a socket, a terminal, a redirected file.
    ///
    /// Its file status flags stay as they are, so a terminal that is shared with a shell is not left in
    /// non-blocking mode. A pipe is opened a second time, without blocking, if the kernel allows it, and so has a reader until
    /// the stream is closed. Closing the stream sets the offset of a regular file behind the last byte that was read from the
    /// stream, whatever was read ahead. Closing the stream of a socket closes the descriptor and not the connection, which
    /// duplicates of the descriptor may keep using.
    ///
    /// - Parameters:
    ///   - descriptor: An open descriptor; one that is not open, or not for reading, fails in
    ///     ``Stream/open()``.
    ///   - closeWhenDone: Whether closing or releasing the stream closes the descriptor. False unless set: it may be
    ///     standard input. A ``Connection`` closes its socket unless told otherwise.
    /// - Precondition: `descriptor` is not negative.
    public init(descriptor: FileDescriptor, closeWhenDone: Bool = false) {
        require(
            descriptor.rawValue >= 0,
            "InputStream(descriptor:) needs an open descriptor, not \(descriptor.rawValue).")
        let shared = SharedDescriptor(descriptor.rawValue, closesWhenDone: closeWhenDone)
        super.init(
            StreamEngine(UnopenedBackend(reading: shared), subject: descriptorName(descriptor.rawValue)))
    }

    /// Whether a read would return bytes, or find the end, without waiting.
    ///
    /// On a run loop or a queue, the read does not wait for a disk either. Elsewhere this is also true if only a read can
    /// tell, so that a program without a run loop can poll it.
    open var hasBytesAvailable: Bool { engine.isReady }

    /// Copies up to `len` bytes to `buffer`, waiting for the first one.
    ///
    /// In a task, ``read(into:timeout:)`` waits without blocking the thread.
    ///
    /// - Returns: The number of bytes; 0 at the end (or if `len` is not positive), -1 if the stream is not
    ///   open or has failed.
    @discardableResult
    open func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        let count = min(max(len, 0), StreamEngine.mostBytes)
        var bytes = unsafe UnsafeMutableRawBufferPointer(start: buffer, count: count).mutableBytes
        return engine.read(into: &bytes)
    }

    /// Provides the remaining bytes of a stream in memory without copying them. They count as read.
    ///
    /// - Parameters:
    ///   - buffer: Set to the bytes, which stay valid until the stream is closed or released.
    ///   - len: Set to the number of bytes.
    /// - Returns: False if the stream's bytes are not in memory; nothing is read then.
    open func getBuffer(
        _ buffer: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, length len: UnsafeMutablePointer<Int>
    ) -> Bool {
        guard let bytes = unsafe engine.takeBuffer() else { return false }
        unsafe buffer.pointee = UnsafeMutablePointer(
            mutating: bytes.assumingMemoryBound(to: UInt8.self).baseAddress)
        unsafe len.pointee = bytes.count
        return true
    }
}

extension InputStream {
    /// Reads up to `count` bytes, waiting for the first one.
    ///
    /// In a task, ``readChunk(upTo:timeout:)`` waits without blocking the thread; see also ``chunks``.
    ///
    /// - Returns: The bytes; none at the end, and none if the stream is not open or has failed: see
    ///   ``Stream/streamStatus``.
    @available(*, noasync, message: "await readChunk(upTo:timeout:)")
    public func read(upTo count: Int) -> [UInt8] {
        let most = min(max(count, 0), StreamEngine.mostBytes)
        var bytes: [UInt8] = []
        if most > 0 { _ = bytes.append(upTo: most) { read(into: &$0) } }
        return bytes
    }

    /// Reads up to `count` bytes without waiting: none at the end; nil if an event will report more, or if the stream is
    /// not open or has failed.
    package func readIfReady(upTo count: Int) -> [UInt8]? {
        var bytes: [UInt8] = []
        let result = bytes.append(upTo: count) { buffer in
            let read = try? engine.readIfReady(into: &buffer)
            return (read ?? nil) ?? -1
        }
        return result < 0 ? nil : bytes
    }

    /// Calls ``read(_:maxLength:)``, which a subclass may override.
    func read(into buffer: inout MutableRawSpan) -> Int {
        buffer.withAddress { unsafe read($0!.assumingMemoryBound(to: UInt8.self), maxLength: $1) }
    }
}
