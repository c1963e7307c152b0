import SystemPackage

/// The source or the destination of a stream's bytes. Owned by its engine alone; safe from any thread.
///
/// The engine holds its lock when it asks for what affects no other stream: the progress of an opening, readiness, faults,
/// room. The answers come at once, and without a call of any engine.
protocol StreamBackend: AnyObject, Sendable {
    /// The event that reports that bytes can be moved.
    var event: Stream.Event { get }
    /// Opens the source or the destination, or begins to.
    ///
    /// - Parameter engine: The backend calls its `refresh()`, with no lock held, after changes that it cannot
    ///   notice, and releases it in ``close()``.
    /// - Returns: The backend of the open stream: this one, or for a file the one for its kind.
    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend
    /// How far the opening has come.
    func progress() -> Availability
    /// Waits until the opening has finished or failed.
    func waitUntilOpen()
    /// Who reports that bytes can be moved; read once the backend is open.
    var readinessSource: ReadinessSource { get }
    /// Whether there is nothing to move from the start, so that the stream is at its end as soon as it is
    /// open.
    var isAtEndWhenOpened: Bool { get }
    /// Releases the resources. Throws if accepted bytes could not be written. May be called again: when the stream is released,
    /// which it may be without having been opened or closed.
    func close() throws(Errno)
    /// Closes the descriptor, if there is one, and does nothing else: for a child of fork(2). Waits for no
    /// lock.
    func closeDescriptor()
    /// Called when a pass of the stream's loop or queue has completed since the backend has called
    /// ``StreamEngine/hold(awaitsPass:)``.
    func passCompleted()
    /// The descriptor that the kernel can watch; nil if there is none.
    var descriptor: SharedDescriptor? { get }
    /// Why no more bytes may be moved. It replaces the error of a call that failed because of that.
    var refusal: (any Error)? { get }
    /// The operation that failed, if the stream has.
    var failedOperation: IOError.Operation { get }
    /// What it has failed on, as an error names it.
    var subject: String { get }
    /// Whether a read or a write would not wait, according to the kernel if need be. Also true if only trying
    /// would show. May drop what no read would return.
    func isReady() -> Bool
    /// Whether a read or a write on a loop would not wait, not even for a disk.
    func isReadyOnLoop() -> Bool
    /// Why the stream has failed, if a loop or a read or a write did not find out yet.
    var failure: Errno? { get }
    /// What the next read or write on a loop can expect. Starts to prepare for it on another thread.
    func prepare() -> Availability
    func property(_ key: Stream.PropertyKey) -> Any?
    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool

    // MARK: Input

    /// Copies the bytes that are there and fit, if that takes one system call and affects no other stream: none if it
    /// would wait. How many fit is the reader's choice, and may be few: bytes that do not fit must stay for the next read. Nil
    /// if it cannot be done so: the engine then calls ``read(into:)`` or ``readIfReady(into:)``. Called with the engine locked
    /// and the stream open.
    func readNow(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer?
    /// Called when a task begins to wait for an event, if the engine's ``StreamEngine/reportsWaits`` is set.
    func noteWait()
    /// What the stream fails with because ``readNow(into:)``, ``writeNow(_:)`` or ``checkRoom()`` has thrown `error`.
    /// Called with nothing locked, as this may notify another stream.
    func transferFailed(_ error: Errno) -> Errno
    /// Waits for at least one byte, then copies the bytes that are there and fit.
    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer
    /// As ``read(into:)``, but copies nothing where that would wait.
    func readIfReady(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer
    /// Takes back bytes that were read, as the next ones to read. False if the engine has to keep them. Called with the
    /// engine locked.
    func putBack(_ bytes: [UInt8]) -> Bool
    /// The remaining bytes, which then count as read, if they are in memory.
    func takeBuffer() -> UnsafeRawBufferPointer?

    // MARK: Output

    /// Waits for room for at least one byte, and accepts as many as fit.
    ///
    /// - Parameter isScheduled: Whether the caller may be a loop's thread, which must not wait for a slow
    ///   disk or a full write buffer.
    func write(_ bytes: RawSpan, isScheduled: Bool) throws(Errno) -> Transfer
    /// Accepts as many bytes as fit, as ``readNow(into:)`` copies them.
    func writeNow(_ bytes: RawSpan) throws(Errno) -> Transfer?
    /// As ``write(_:isScheduled:)``, but accepts nothing where that would wait.
    func writeIfReady(_ bytes: RawSpan) throws(Errno) -> Transfer
    /// Sends a part of a file by sendfile(2), without waiting for room. Nil: the caller copies the bytes instead, which also
    /// yields the error.
    func send(_ part: FilePart) -> Transfer?
    /// Checks for room, by at most one system call. If there is none, the kernel or the backend reports when there is. Called
    /// with the engine locked.
    func checkRoom() throws(Errno) -> Room
    /// Waits until the kernel has taken all accepted bytes.
    func flush(until deadline: Deadline) throws(Errno)
    /// Whether the kernel has taken all accepted bytes.
    var isFlushed: Bool { get }
    /// Calls `callback` when the kernel has taken all accepted bytes, or the output has failed or is closed. Any thread.
    func whenFlushed(_ callback: FlushCallback)
    /// Calls `callback` when there may be room, or the output has failed or is closed. Any thread.
    func whenRoom(_ callback: FlushCallback)
    /// Whether closing the stream closes its descriptor, though the stream was never opened, as a child's is.
    var closesUnopened: Bool { get }
    /// Sets whether the output fails if the receiver of the bytes in its buffer takes none for as long as it may after closing.
    func limitStall(_ isLimited: Bool)
    /// Why an output at its end accepts no more.
    var endError: Errno { get }
    /// Ends the output; the peer reads the end. An error but `Errno.notSocket` fails the stream.
    func shutDown() throws(Errno)
}

/// Who reports that bytes can be moved.
enum ReadinessSource {
    /// Nothing, until both halves are announced. The kernel watches an input on a loop already, so that its bytes keep their
    /// place among what the kernel reports; a queue's callback has no such place.
    case unannounced
    /// The backend, when the engine asks, and by notifying the engine.
    case backend
    /// The kernel and the backend. Before each event the engine asks the backend whether it ``StreamBackend/isReady()``; if
    /// not, nothing is delivered, and the kernel reports again. The backend may also be ready with what it has received before.
    /// One that keeps no bytes returns `.waiting` from ``StreamBackend/prepare()``, which spares a call of `isReady()` after
    /// each transfer.
    case kernelThroughBackend
    /// The kernel.
    case kernel
    /// The kernel, after a write that found no room. Until then there is room.
    case kernelWhenFull

    /// Whether the backend is asked after each transfer, and after ``Stream/Event/openCompleted``.
    var asksBackend: Bool { self != .kernel && self != .kernelWhenFull }
}

/// What the next step of a stream can expect: its opening, its next read or write.
enum Availability {
    /// The step has to wait. The backend or the kernel will report.
    case waiting
    case ready
    /// No more bytes will come, or be accepted.
    case atEnd
    case failed(any Error)
}

/// The result of a read or a write.
struct Transfer {
    var count: Int
    /// Whether no more bytes will come, or fit.
    var isAtEnd = false
    /// The output's knowledge of room for more.
    var room = Room.assumed

    /// Whether nothing was moved because there was nothing to move, or no room.
    var wouldWait: Bool { count == 0 && !isAtEnd }
}

/// An output's knowledge of room for the next write.
enum Room {
    /// The last write found enough. The engine checks before it calls the delegate.
    case assumed
    /// A check has found some, or the last write has left some: the delegate is called without a check.
    case found
    /// None until the kernel reports it.
    case full
    /// None until the backend reports it.
    case awaited

    /// Whether the next write probably finds some.
    var isLikely: Bool { self == .assumed || self == .found }
}

extension StreamBackend {
    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend { self }
    func progress() -> Availability { .ready }
    func waitUntilOpen() {}
    var readinessSource: ReadinessSource { descriptor == nil ? .backend : .kernel }
    var isAtEndWhenOpened: Bool { false }
    func close() throws(Errno) {}
    func closeDescriptor() { descriptor?.close() }
    func passCompleted() {}
    var descriptor: SharedDescriptor? { nil }
    var refusal: (any Error)? { nil }
    var failedOperation: IOError.Operation { event == .hasBytesAvailable ? .read : .write }
    var subject: String { "memory" }
    func isReadyOnLoop() -> Bool { isReady() }
    var failure: Errno? { nil }
    func prepare() -> Availability { isReady() ? .ready : .waiting }
    func property(_ key: Stream.PropertyKey) -> Any? { nil }
    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { false }

    func readNow(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer? { nil }
    func transferFailed(_ error: Errno) -> Errno { error }
    func noteWait() {}
    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        throw .badFileDescriptor
    }
    func readIfReady(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        isReadyOnLoop() ? try read(into: &buffer) : Transfer(count: 0)
    }
    func putBack(_ bytes: [UInt8]) -> Bool { false }
    func takeBuffer() -> UnsafeRawBufferPointer? { nil }

    func write(_ bytes: RawSpan, isScheduled: Bool) throws(Errno) -> Transfer {
        throw .badFileDescriptor
    }
    func writeNow(_ bytes: RawSpan) throws(Errno) -> Transfer? { nil }
    func writeIfReady(_ bytes: RawSpan) throws(Errno) -> Transfer {
        isReadyOnLoop() ? try write(bytes, isScheduled: true) : Transfer(count: 0, room: .awaited)
    }
    func send(_ part: FilePart) -> Transfer? { nil }
    func checkRoom() throws(Errno) -> Room { isReady() ? .found : .full }
    func flush(until deadline: Deadline) throws(Errno) {}
    var isFlushed: Bool { true }
    func whenFlushed(_ callback: FlushCallback) { callback() }
    func whenRoom(_ callback: FlushCallback) { whenFlushed(callback) }
    func limitStall(_ isLimited: Bool) {}
    var closesUnopened: Bool { false }
    var endError: Errno { .brokenPipe }
    func shutDown() throws(Errno) { throw .notSocket }
}

/// A backend that is read.
protocol InputBackend: StreamBackend {}

extension InputBackend {
    var event: Stream.Event { .hasBytesAvailable }
}

/// A backend that is written.
protocol OutputBackend: StreamBackend {}

extension OutputBackend {
    var event: Stream.Event { .hasSpaceAvailable }
}
