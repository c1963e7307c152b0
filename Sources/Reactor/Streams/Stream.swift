public import Dispatch
import SystemPackage

/// Is told what happens on a stream, on the thread of a run loop that the stream is scheduled on, or on its queue.
public protocol StreamDelegate: AnyObject {
    /// Called for one event of `aStream`.
    ///
    /// It may do anything with the stream and with others: read, write, close, remove, schedule, run the loop
    /// again. The stream is not served again before it returns.
    func stream(_ aStream: Stream, handle eventCode: Stream.Event)
}

extension StreamDelegate {
    /// Ignores the event.
    public func stream(_ aStream: Stream, handle eventCode: Stream.Event) {}
}

/// What input and output streams share: a status, events for a delegate, and scheduling on run loops.
///
/// A stream is opened once and closed once. Scheduled on a run loop, it tells its delegate there, in the
/// modes it is scheduled in, that it has opened, that it can be read or written, that it has failed or come
/// to its end. It tells of bytes, or of space, once; and again only after it has been read, or written.
/// On a Dispatch queue it tells the same there (``setDispatchQueue(_:)``).
/// Without a loop it is used by reading and writing, which wait.
///
/// Every method may be called from any thread, one thread at a time for a stream; ``close()``,
/// ``remove(from:forMode:)`` and the status from any thread at any time. No event is told after ``close()``,
/// and none on a loop that the stream was removed from. A stream that is let go of is closed.
///
/// Where Foundation on Linux differs: there no delegate is ever called, and ``streamError`` crashes when
/// there is none.
open class Stream {
    let engine: StreamEngine
    /// The path or descriptor that the stream was created for, as its errors name it; nil where the backend knows.
    private let subject: String?

    init(_ engine: StreamEngine, subject: String? = nil) {
        self.engine = engine
        self.subject = subject
        engine.serve(self)
    }

    deinit { engine.retire() }

    /// The object that events are delivered to; not kept alive. Nil, as at first, means the stream itself, if it is a
    /// ``StreamDelegate``.
    ///
    /// Events wait for a delegate: what has happened while there was none is delivered when there is one, unless a
    /// read, a write or the closing of the stream has made it void. A new delegate is also told of bytes or space that
    /// its predecessor was told of and has not answered. A subclass that overrides this property without calling
    /// `super` schedules the stream after it has got a delegate.
    open weak var delegate: (any StreamDelegate)? {
        get { engine.delegate }
        set { engine.delegate = newValue }
    }

    /// Opens the stream; does nothing unless its status is ``Status/notOpen``.
    ///
    /// Files, descriptors, memory and bound pairs are open, or have failed, when it returns. A fault is
    /// reported by ``streamStatus`` and ``streamError``, and to the delegate as ``Event/errorOccurred``.
    open func open() { engine.open() }

    /// Closes the stream, takes it out of all loops, and releases what it holds; its properties stay
    /// readable.
    ///
    /// Bytes that were accepted for a file are written before it returns. Those for a socket, pipe or terminal that the
    /// kernel or a write buffer still holds are sent in the background, and the process does not exit before that, for
    /// up to five seconds. A socket is shut down first, and what its peer still sends is read and dropped, so that
    /// unread input does not make the kernel discard what was written. The peer may take no byte for the
    /// ``PropertyKey/socketWriteTimeoutKey``, or 30 seconds.
    ///
    /// A socket that is still open when the process exits is closed by the kernel, which discards what it has not sent
    /// yet if there is unread input: close streams before. In a child of fork(2), closing a stream of the parent leaves
    /// its connection alone.
    ///
    /// If accepted bytes cannot be written or sent, the status becomes ``Status/error``, perhaps later. Otherwise it is
    /// ``Status/closed``. The stream cannot be opened again. Does nothing before ``open()``.
    open func close() { engine.close() }

    /// What the stream is doing.
    open var streamStatus: Status { engine.status }

    /// Why the stream failed: an ``IOError``, or for sockets a ``ResolverError`` or a ``StreamRequirementError``. Nil
    /// unless the status is ``Status/error``.
    open var streamError: (any Error)? {
        guard let error = engine.error, let errno = error as? Errno else { return engine.error }
        let backend = engine.backend
        return IOError(backend.failedOperation, subject ?? backend.subject, errno)
    }

    /// Has the delegate told of events on `aRunLoop`'s thread while it runs in `mode`; any number of loops
    /// and modes.
    ///
    /// In which order a stream is opened, scheduled and given a delegate does not matter: what can be told is
    /// told.
    open func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        engine.schedule(in: aRunLoop, mode)
    }

    /// Takes the stream out of `mode` of `aRunLoop`, however often it was scheduled there.
    open func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        engine.remove(from: aRunLoop, mode)
    }

    /// Has the delegate told of events on `queue`, and on no run loop any longer: Core Foundation's
    /// `CFReadStreamSetDispatchQueue`.
    ///
    /// They are told in order and one at a time, though the queue be concurrent. Nil takes the stream off its queue;
    /// so does scheduling it on a run loop. No event is told on a queue that the stream has been taken off, nor after
    /// ``close()``, unless another thread did that and the delegate was being called already.
    ///
    /// A thread of this library's own waits for the stream meanwhile. If there can be none (pthread_create(3)), the
    /// stream fails.
    open func setDispatchQueue(_ queue: DispatchQueue?) {
        guard let queue else { return setQueue(nil) }
        setQueue { callout in queue.async(execute: callout) }
    }

    /// As ``setDispatchQueue(_:)``, for queues of any kind.
    package func setQueue(_ enqueue: StreamQueue.Enqueue?) { engine.setQueue(enqueue) }

    /// The value of a property; nil if the stream has no such property, or no value for it now.
    open func property(forKey key: PropertyKey) -> Any? { engine.property(key) }

    /// Sets a property. False if the stream has no such property, or can no longer change it.
    @discardableResult
    open func setProperty(_ property: Any?, forKey key: PropertyKey) -> Bool {
        engine.setProperty(property, key)
    }
}

extension Stream: Equatable, Hashable {
    /// Whether the two are the same stream.
    public static func == (left: Stream, right: Stream) -> Bool { left === right }

    /// Hashes the stream's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
