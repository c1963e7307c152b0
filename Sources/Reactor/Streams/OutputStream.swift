public import SystemPackage

/// A stream of bytes to write: to a file, a descriptor, memory, a fixed buffer, or the input half of a bound
/// pair.
///
/// An open stream on a run loop delivers ``Stream/Event/hasSpaceAvailable`` to its delegate, which writes.
/// Bytes for a regular file are accepted at once, up to 256 KiB, and written on a Dispatch queue, so that a
/// slow disk does not block the loop's thread; ``Stream/close()`` waits for them. When the reader of a pipe
/// or a socket has closed it, the stream fails with `Errno.brokenPipe`; SIGPIPE is not raised. Closing the
/// input of a bound pair ends the output (``Stream/boundPair(bufferSize:)``).
///
/// ```swift
/// let output = OutputStream(path: "report.txt")
/// output.open()
/// _ = output.write("done\n")
/// output.close()
/// ```
open class OutputStream: Stream {
    // No initializer is a convenience initializer, so that a subclass without its own inherits them all.

    override init(_ engine: StreamEngine) { super.init(engine) }

    init(backend: any OutputBackend) { super.init(StreamEngine(backend)) }

    /// A stream in memory, for a subclass that overrides what it needs.
    public init() { super.init(StreamEngine(MemoryOutput())) }

    /// A stream that collects the written bytes in memory: ``writtenBytes``.
    public required init(toMemory: ()) { super.init(StreamEngine(MemoryOutput())) }

    /// A stream that collects the written bytes in memory.
    open class func toMemory() -> Self { self.init(toMemory: ()) }

    /// A stream into the `capacity` bytes at `buffer`, which must stay valid until it is closed.
    ///
    /// A write accepts the bytes that fit. When the buffer is full the stream is at its end, and further
    /// writes return 0.
    public init(toBuffer buffer: UnsafeMutablePointer<UInt8>, capacity: Int) {
        super.init(
            StreamEngine(
                unsafe BufferOutput(UnsafeMutableRawBufferPointer(start: buffer, count: max(capacity, 0)))))
    }

    /// A stream into the file at `path`, which ``Stream/open()`` creates if it is missing (mode 0666, less
    /// the umask). Opening a FIFO that no process reads fails with `Errno.noSuchAddressOrDevice`.
    ///
    /// - Parameters:
    ///   - path: The file, relative to the working directory when the stream is opened.
    ///   - append: Whether to append to a regular file; otherwise it is truncated.
    public init(path: FilePath, append: Bool = false) {
        super.init(StreamEngine(UnopenedBackend(writing: path, append: append), subject: "\(path)"))
    }

    /// As ``init(path:append:)``; never nil, optional as in Cocoa.
    public init?(toFileAtPath path: String, append shouldAppend: Bool) {
        super.init(
            StreamEngine(UnopenedBackend(writing: FilePath(path), append: shouldAppend), subject: path))
    }

    /// A stream into `descriptor`: a pipe, a socket, a terminal, a redirected file. Its file status flags
    /// stay as they are. A pipe or a terminal is opened a second time, without blocking, if the kernel allows it, and so has a
    /// writer until the stream is closed.
    ///
    /// - Parameters:
    ///   - descriptor: An open descriptor; one that is not open, or not for writing, fails in
    ///     ``Stream/open()``.
    ///   - closeWhenDone: Whether closing or releasing the stream closes the descriptor. False unless set: it may be
    ///     standard output. A ``Connection`` closes its socket unless told otherwise. Closing a socket may shut
    ///     its connection down for duplicates of the descriptor too: see ``Stream/close()``. To keep reading
    ///     from one, pass false, or have the two ``Connection/streams`` of a ``Connection``.
    /// - Precondition: `descriptor` is not negative.
    public init(descriptor: FileDescriptor, closeWhenDone: Bool = false) {
        require(
            descriptor.rawValue >= 0,
            "OutputStream(descriptor:) needs an open descriptor, not \(descriptor.rawValue).")
        let shared = SharedDescriptor(descriptor.rawValue, closesWhenDone: closeWhenDone)
        super.init(
            StreamEngine(UnopenedBackend(writing: shared), subject: descriptorName(descriptor.rawValue)))
    }

    /// Whether there is room to write without waiting. A socket's stream does not know of room that other code
    /// has taken through a duplicate of the descriptor.
    open var hasSpaceAvailable: Bool { engine.isReady }

    /// Writes up to `len` bytes from `buffer`, waiting if there is no room for the first one; a task awaits
    /// ``writeAll(_:timeout:)-([UInt8],_)`` instead.
    ///
    /// A socket, pipe or terminal accepts as many bytes as the kernel has room for, so a delegate that writes
    /// once for each ``Stream/Event/hasSpaceAvailable`` never waits. With a ``writeBufferSize`` it accepts
    /// that many more, and does not wait on a run loop. Nor does a file, which returns 0 while 256 KiB wait to
    /// be written, and delivers the event when there is room. Accepted bytes are lost only if the peer, the
    /// network or the disk fails, and then the stream fails.
    /// - Returns: The number of accepted bytes, perhaps fewer than `len`; 0 if a fixed buffer, a write buffer
    ///   or a file's is full, or the input of a bound pair has been closed (or `len` is not positive); -1 if
    ///   the stream is not open or has failed.
    @discardableResult
    open func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
        let count = min(max(len, 0), StreamEngine.mostBytes)
        return unsafe engine.write(UnsafeRawBufferPointer(start: buffer, count: count).bytes)
    }

    /// Ends the output of a socket, while reading continues: shutdown(2) with `SHUT_WR`.
    ///
    /// Bytes that were written before arrive first. The stream is then at its end; further writes return 0.
    /// In a task, ``finish(timeout:)`` waits for the bytes first.
    /// - Throws: ``IOError`` with `Errno.notSocket` for a stream that is not a socket's, with `Errno.socketNotConnected` for
    ///   one that is not open, or ``Stream/streamError`` if the stream has failed.
    @available(*, noasync, message: "await finish(timeout:)")
    public func shutDown() throws { try throwingStreamError(engine.shutDown) }

    /// How many bytes a ``write(_:maxLength:)`` accepts beyond those that the kernel takes. 0, as in Cocoa,
    /// unless it is set; a negative number is not set. The buffer's memory grows with the bytes that it holds.
    ///
    /// For sockets, pipes and terminals; setting it has no effect on other streams, because a path shows what it
    /// names only when it is opened. With a write buffer a write on a run loop never waits once the stream is open:
    /// it returns the number of bytes that it accepted, which is 0 when the buffer is full.
    /// ``Stream/Event/hasSpaceAvailable`` means that three quarters of the buffer are free, so a delegate that
    /// writes no more than that for each event has all of it accepted. A thread of this library sends accepted
    /// bytes in order, in whatever mode the loop runs, even after the stream was removed from its loop or closed,
    /// and while the process exits, for as long as ``Stream/close()`` says. If they cannot be sent, the stream
    /// fails, even after it was closed.
    ///
    /// The value stays 0 for a pipe, terminal or device in blocking mode that cannot be opened again, such as another user's
    /// pipe: it has no write buffer.
    public var writeBufferSize: Int {
        get { property(forKey: .writeBufferSizeKey) as? Int ?? 0 }
        set { setProperty(newValue, forKey: .writeBufferSizeKey) }
    }

    /// Waits until the kernel has taken all accepted bytes: those in a write buffer, and those of a file,
    /// which are written in the background while the stream is on a run loop.
    ///
    /// Only an open stream can be flushed; ``Stream/close()`` needs no flush before it. In a task,
    /// ``flush(timeout:)`` waits without blocking the thread.
    /// - Throws: ``IOError`` with ``IOError/Reason/waitTimedOut`` if the kernel has not taken the bytes by `deadline`, with
    ///   `Errno.badFileDescriptor` if the stream is not open, or ``Stream/streamError`` if it has failed.
    @available(*, noasync, message: "await flush(timeout:)")
    public func flushAndWait(until deadline: Deadline = .distantFuture) throws {
        try throwingStreamError { () throws(Errno) in try engine.flush(until: deadline) }
    }

    /// Throws the stream's error in place of `body`'s, and in place of calling it.
    private func throwingStreamError(_ body: () throws(Errno) -> Void) throws {
        if let streamError { throw streamError }
        do throws(Errno) { try body() } catch { throw streamError ?? engine.failure(.endOfWait(error)) }
    }

    /// The bytes that were written to a stream in memory; empty for any other stream.
    public var writtenBytes: [UInt8] { engine.backend.property(.writtenBytesKey) as? [UInt8] ?? [] }
}

extension OutputStream {
    /// As ``init(path:append:)``, with more bytes than 256 KiB that may wait to be written to a regular file.
    package convenience init(path: FilePath, append: Bool, writeBehindLimit: Int) {
        let file = UnopenedBackend(writing: path, append: append, writeBehindLimit: writeBehindLimit)
        self.init(StreamEngine(file, subject: "\(path)"))
    }

    /// As ``init(path:append:writeBehindLimit:)``, for a file that the caller has opened. Owns the descriptor.
    package convenience init(descriptor: CInt, path: String, writeBehindLimit: Int) {
        let shared = SharedDescriptor(descriptor, closesWhenDone: true)
        let file = UnopenedBackend(writing: shared, writeBehindLimit: writeBehindLimit)
        self.init(StreamEngine(file, subject: path))
    }

    /// Whether the kernel has taken all accepted bytes, or the stream has failed.
    package var isFlushed: Bool { (try? engine.isFlushed()) ?? true }

    /// Why a stream that is at its end, or closed, accepts no more bytes.
    package var endError: IOError {
        engine.failure(engine.status == .closed ? .badFileDescriptor : engine.backend.endError)
    }

    /// Calls `callback` on any thread when the kernel has taken all accepted bytes, or the stream has failed.
    package func whenFlushed(_ callback: @escaping @Sendable () -> Void) {
        engine.backend.whenFlushed(FlushCallback(callback))
    }

    /// Writes all of `text` as UTF-8, like ``write(_:)-([UInt8])``.
    ///
    /// - Returns: The number of accepted bytes, not of characters: a stream that accepts fewer than
    ///   `text.utf8.count` may end inside a character.
    @available(*, noasync, message: "await writeAll(_:timeout:)")
    public func write(_ text: String) -> Int {
        write(text.utf8)
    }

    /// Writes all of `bytes`, like ``write(_:)-([UInt8])``.
    @available(*, noasync, message: "await writeAll(_:timeout:)")
    public func write(_ bytes: RawSpan) -> Int {
        var written = 0
        while written < bytes.byteCount {
            let count = writeOnce(bytes.extracting(droppingFirst: written))
            guard count > 0 else {
                require(
                    count == 0 || !engine.isUnopened,
                    "OutputStream.write was called before open(), so none of its bytes would be written.")
                break
            }
            written += count
        }
        return written
    }

    /// Writes all of `bytes`, waiting for room as often as necessary: a peer that does not read stops the
    /// thread, and with it the thread's loop. On a run loop a file, and a stream with a ``writeBufferSize``, does
    /// not wait once it is open, and accepts as many as there is room for. Before ``Stream/Event/openCompleted``
    /// a write waits for the connection. In a task, ``writeAll(_:timeout:)-([UInt8],_)`` waits without blocking
    /// the thread.
    ///
    /// - Returns: The number of accepted bytes: fewer than all if the stream is full, has failed, or is closed.
    /// - Precondition: ``Stream/open()`` was called, unless the stream is a subclass.
    ///   (``write(_:maxLength:)`` returns -1 instead, as in Cocoa.)
    @available(*, noasync, message: "await writeAll(_:timeout:)")
    public func write(_ bytes: [UInt8]) -> Int { bytes.withBytes { write($0) } }

    /// Writes all of `bytes`, like ``write(_:)-([UInt8])``. Copies them first unless they are contiguous in memory.
    @available(*, noasync, message: "await writeAll(_:timeout:)")
    public func write(_ bytes: some Sequence<UInt8>) -> Int {
        let written = bytes.withContiguousStorageIfAvailable {
            write(unsafe UnsafeRawBufferPointer($0).bytes)
        }
        return written ?? write(Array(bytes))
    }

    /// Writes with one call of ``write(_:maxLength:)``, which a subclass may override.
    private func writeOnce(_ bytes: RawSpan) -> Int {
        bytes.withAddress { unsafe write($0!.assumingMemoryBound(to: UInt8.self), maxLength: $1) }
    }
}
