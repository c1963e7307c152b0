public import SystemPackage

/// A stream of bytes that go out: to a file, a descriptor, memory, a fixed buffer, or the input half of a
/// bound pair.
///
/// Opened and scheduled on a run loop, it tells its delegate when there is room; the delegate writes. What is
/// written to a regular file is taken at once and written on a Dispatch queue, so that a slow disk does not
/// hold up the loop's thread. A reader that has closed a pipe or a socket is an error of the stream,
/// `Errno.brokenPipe`; SIGPIPE is not raised. The reader of a bound pair ends the stream
/// (``Stream/boundPair(bufferSize:)``).
open class OutputStream: Stream {
    // Not one of these is a convenience initialiser, so that a subclass without its own inherits them all.

    init(backend: any OutputBackend) { super.init(StreamEngine(backend)) }

    /// A stream in memory, for a subclass that overrides what it needs.
    public init() { super.init(StreamEngine(MemoryOutput())) }

    /// A stream that collects what is written in memory: ``writtenBytes``.
    public required init(toMemory: ()) { super.init(StreamEngine(MemoryOutput())) }

    /// A stream that collects what is written in memory.
    open class func toMemory() -> Self { self.init(toMemory: ()) }

    /// A stream into the `capacity` bytes at `buffer`, which must stay valid until it is closed.
    ///
    /// A write takes what fits; when the buffer is full the stream is at its end, and a further write returns
    /// 0.
    public init(toBuffer buffer: UnsafeMutablePointer<UInt8>, capacity: Int) {
        let bytes = unsafe UnsafeMutableRawBufferPointer(start: buffer, count: max(capacity, 0))
        super.init(unsafe StreamEngine(BufferOutput(bytes)))
    }

    /// A stream into the file at `path`, which ``Stream/open()`` makes if it is missing (mode 0666, less the
    /// umask). It fails for a FIFO that nobody reads (`Errno.noSuchAddressOrDevice`).
    ///
    /// - Parameter append: Whether to write behind what is there; else a regular file is emptied.
    public init(path: FilePath, append: Bool = false) {
        super.init(StreamEngine(UnopenedFile(writing: path, append: append)), subject: "\(path)")
    }

    /// As ``init(path:append:)``; never nil, optional as in Cocoa.
    public init?(toFileAtPath path: String, append shouldAppend: Bool) {
        super.init(StreamEngine(UnopenedFile(writing: FilePath(path), append: shouldAppend)), subject: path)
    }

    /// A stream into `descriptor`: a pipe, a socket, a terminal, a redirected file, whose file status flags
    /// stay as they are.
    ///
    /// - Parameters:
    ///   - descriptor: An open descriptor; one that is not open fails in ``Stream/open()``.
    ///   - closeWhenDone: Whether closing the stream, or letting go of it, closes the descriptor.
    /// - Precondition: `descriptor` is not negative.
    public init(descriptor: FileDescriptor, closeWhenDone: Bool = false) {
        precondition(
            descriptor.rawValue >= 0,
            "OutputStream(descriptor:) needs an open descriptor, not \(descriptor.rawValue).")
        let holder = DescriptorHolder(descriptor.rawValue, closesWhenDone: closeWhenDone)
        super.init(StreamEngine(UnopenedFile(writing: holder)), subject: "descriptor \(descriptor.rawValue)")
    }

    /// Whether there is room to write without waiting.
    open var hasSpaceAvailable: Bool { engine.isReady }

    /// Writes up to `len` bytes from `buffer`, and waits if there is no room for the first one.
    ///
    /// A socket, pipe or terminal takes as many bytes as the kernel has room for, so a delegate that writes once for
    /// each ``Stream/Event/hasSpaceAvailable`` never waits. With a ``writeBufferSize`` it takes that many more, and does
    /// not wait on a run loop. Accepted bytes are lost only if the peer or the network fails, and then the stream fails.
    /// - Returns: How many bytes were accepted, perhaps fewer than `len`; 0 if a fixed buffer or a write buffer is full,
    ///   or the input of a bound pair has been closed (or `len` is not positive); -1 if the stream is not open or has
    ///   failed.
    @discardableResult
    open func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
        let count = min(max(len, 0), StreamEngine.mostBytes)
        return unsafe engine.write(UnsafeRawBufferPointer(start: buffer, count: count))
    }

    /// Tells the peer of a socket that nothing more will come, and goes on reading: shutdown(2) with `SHUT_WR`.
    ///
    /// What was written before arrives before. The stream is at its end after this; a further write returns 0.
    /// - Throws: `Errno.notSocket` for a stream that is not a socket's, `Errno.socketNotConnected` for one that is
    ///   not open, or whatever the connection has failed with.
    public func shutDown() throws(Errno) { try engine.shutDown() }

    /// How many bytes beyond what the kernel takes a ``write(_:maxLength:)`` accepts; 0, as in Cocoa, unless it is set.
    ///
    /// For sockets, pipes and terminals; setting it has no effect on other streams. With a write buffer a write on a
    /// run loop never waits: it returns how many bytes it accepted, which is 0 when the buffer is full.
    /// ``Stream/Event/hasSpaceAvailable`` means that three quarters of the buffer are free, so a delegate that writes no
    /// more than that for each event has all of it accepted. Accepted bytes are sent in order by a thread of this
    /// library, in whatever mode the loop runs, also after the stream was removed from its loop or closed, and while the
    /// process exits, for as long as ``Stream/close()`` says. If they cannot be sent, the stream fails, even after it was
    /// closed.
    ///
    /// A terminal or device that is in blocking mode and cannot be opened once more has no write buffer: then the value
    /// stays 0.
    public var writeBufferSize: Int {
        get { property(forKey: .writeBufferSizeKey) as? Int ?? 0 }
        set { setProperty(newValue, forKey: .writeBufferSizeKey) }
    }

    /// Waits until all accepted bytes have been handed to the kernel: those of a write buffer, and those of a file,
    /// which are written in the background while the stream is on a run loop.
    ///
    /// Only a stream that is open can be flushed; ``close()`` needs no flush before it.
    /// - Throws: `Errno.timedOut` if the bytes have not been handed over by `deadline`, `Errno.badFileDescriptor` if the
    ///   stream is not open, or what the stream has failed with.
    public func flush(until deadline: Deadline = .distantFuture) throws(Errno) {
        try engine.flush(until: deadline)
    }

    /// What has been written to a stream in memory; empty for any other stream.
    public var writtenBytes: [UInt8] { engine.backend.property(.writtenBytesKey) as? [UInt8] ?? [] }
}
