import SystemPackage

/// Where a stream's bytes come from or go to. Held by its engine alone; safe from any thread.
protocol StreamBackend: AnyObject, Sendable {
    /// The event that says that bytes can be moved.
    var event: Stream.Event { get }
    /// Opens what the bytes come from or go to, or begins to.
    ///
    /// - Parameter engine: To be refreshed, with no lock held, after a change that it cannot know of; to be released in
    ///   ``close()``.
    /// - Returns: The backend of the open stream: this, or for a file the one for its kind.
    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend
    /// How far the opening has come.
    func progress() -> Availability
    /// Waits until the opening has come to an end, one way or the other.
    func waitUntilOpen()
    /// What reports that bytes can be moved; asked when the backend is open.
    var readinessSource: ReadinessSource { get }
    /// Whether there was nothing to move from the start: then the stream is at its end as soon as it is open.
    var isAtEndWhenOpened: Bool { get }
    /// Releases what is held, opened or not; throws if bytes that were accepted could not be written. May be
    /// called more than once.
    func close() throws(Errno)
    /// What the kernel can be asked about this backend; nil if it cannot.
    var descriptor: DescriptorHolder? { get }
    /// Why no more bytes may be moved, whatever error a call has ended with because of that.
    var refusal: (any Error)? { get }
    /// What has failed, if the stream has.
    var failedOperation: IOError.Operation { get }
    /// What it has failed on, as an error names it.
    var subject: String { get }
    /// Whether a read or a write would not wait, asking the kernel if need be; true as well if only trying
    /// would tell.
    func isReady() -> Bool
    /// What a stream on a loop can expect of its next read or write. Prepares for that, off the calling thread.
    func prepare() -> Availability
    func property(_ key: Stream.PropertyKey) -> Any?
    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool

    // MARK: Input

    /// Copies what there is, as far as it fits, if that takes a system call and concerns no other stream. Nil if it
    /// does not, or has to wait: then ``read(into:)`` is called. Called with the engine locked and the stream open.
    func readNow(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer?
    /// Waits for at least one byte, and copies what there is, as far as it fits.
    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer
    /// The bytes that are left, which count as read, if they are in memory.
    func takeBuffer() -> UnsafeRawBufferPointer?

    // MARK: Output

    /// Waits for room for at least one byte, and takes as many as fit.
    ///
    /// `isScheduled` says whether a loop's thread may be calling, which neither a slow disk nor a full write buffer may
    /// hold up.
    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer
    /// What the next write finds; if there is no room, the kernel or the backend tells when there is.
    func checkRoom() throws(Errno) -> Room
    /// Waits until everything that was accepted has been handed to the kernel.
    func flush(until deadline: Deadline) throws(Errno)
    /// Tells the peer that nothing more will come.
    func shutDown() throws(Errno)
}

/// What reports that bytes can be moved.
enum ReadinessSource {
    /// The backend, when it is asked and when it notifies.
    case backend
    /// The kernel.
    case kernel
    /// The kernel, after a write that found no room; until then there is room.
    case kernelWhenFull
}

/// What the next step of a stream can expect: its opening, its next read or write.
enum Availability {
    /// The step has to wait: the backend will notify, or the kernel report.
    case waiting
    case ready
    /// Nothing more will come, or be taken.
    case atEnd
    case failed(any Error)
}

/// What a read or a write did.
struct Transfer {
    var count: Int
    /// Whether nothing more will come, or fit.
    var isAtEnd = false
    /// What an output knows of the room for more.
    var room = Room.assumed
}

/// What an output knows of the room for its next write.
enum Room {
    /// The last write found enough. It is checked before the delegate is called for it.
    case assumed
    case found
    /// There is none until the kernel reports some.
    case full
    /// There is none until the backend reports some.
    case awaited
}

extension StreamBackend {
    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend { self }
    func progress() -> Availability { .ready }
    func waitUntilOpen() {}
    var readinessSource: ReadinessSource { descriptor == nil ? .backend : .kernel }
    var isAtEndWhenOpened: Bool { false }
    func close() throws(Errno) {}
    var descriptor: DescriptorHolder? { nil }
    var refusal: (any Error)? { nil }
    var failedOperation: IOError.Operation { event == .hasBytesAvailable ? .read : .write }
    var subject: String { "memory" }
    func prepare() -> Availability { isReady() ? .ready : .waiting }
    func property(_ key: Stream.PropertyKey) -> Any? { nil }
    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { false }

    func readNow(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer? { nil }
    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        throw .badFileDescriptor
    }
    func takeBuffer() -> UnsafeRawBufferPointer? { nil }

    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        throw .badFileDescriptor
    }
    func checkRoom() throws(Errno) -> Room { isReady() ? .found : .full }
    func flush(until deadline: Deadline) throws(Errno) {}
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
