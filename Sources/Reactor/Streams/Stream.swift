public import Dispatch
import SystemPackage

/// Receives the events of streams, on the thread of a run loop that the stream is scheduled on, or on its
/// queue.
///
/// ```swift
/// final class Printer: StreamDelegate {
///     func stream(_ stream: Stream, handle event: Stream.Event) {
///         switch event {
///         case .hasBytesAvailable: print((stream as? InputStream)?.read(upTo: 4096) ?? [])
///         case .endEncountered, .errorOccurred: stream.close()
///         default: break
///         }
///     }
/// }
/// ```
public protocol StreamDelegate: AnyObject {
    /// Called for one event of `aStream`.
    ///
    /// It may use this stream and others in any way: read, write, close, remove, schedule, run the loop
    /// again. The stream delivers no other event before it returns.
    func stream(_ aStream: Stream, handle eventCode: Stream.Event)
}

extension StreamDelegate {
    /// Ignores the event, which the debug mode reports if bytes or space have come.
    public func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        if aStream.delegate === self || aStream === self { aStream.engine.noteIgnored(eventCode) }
    }
}

/// The base of input and output streams: a status, events for a delegate, and scheduling on a run loop.
///
/// A stream is opened once and closed once. On a run loop it delivers events to its delegate, in the modes
/// that it is scheduled in: it has opened, it can be read or written, it has reached its end, it has failed.
/// An event for bytes or for space is delivered once, and again only after a read or a write. On a Dispatch
/// queue a stream delivers the same events there (``setDispatchQueue(_:)``). Without either, a program reads
/// and writes, which waits.
///
/// ```swift
/// let input = InputStream(path: "/etc/services")
/// let printer = Printer()  // to be kept: the stream refers to it weakly
/// input.delegate = printer
/// input.schedule(in: .current, forMode: .default)
/// input.open()
/// ```
///
/// Every method may be called from any thread, but for one stream by one thread at a time; ``close()``,
/// ``remove(from:forMode:)`` and the status may be used from any thread at any time. After
/// ``close()`` on the loop's thread no callback begins; if another thread closes or removes the stream, one
/// may still begin. No event is delivered on a loop that the stream was removed from. Neither its loop nor its delegate keeps
/// a stream alive: releasing the last reference closes it.
///
/// On Linux, Foundation's streams never call a delegate, and crash in ``streamError`` if there is no error; these do
/// neither.
open class Stream {
    let engine: StreamEngine

    init(_ engine: StreamEngine) {
        self.engine = engine
        engine.attach(to: self)
    }

    deinit { engine.retire() }

    /// The object that receives events, referenced weakly. Nil, the default, means the stream itself, if it
    /// is a ``StreamDelegate``.
    ///
    /// Events wait for a delegate: those that came while there was none are delivered to the next one, unless
    /// a read, a write or the closing of the stream has overtaken them. A new delegate also receives an event
    /// for bytes or space again if its predecessor has not read or written since. A subclass that overrides
    /// this property without calling `super` must set its delegate before it is scheduled.
    open weak var delegate: (any StreamDelegate)? {
        get { engine.delegate }
        set { engine.delegate = newValue }
    }

    /// What dumps, ``LoopDiagnostics`` and explanations call the stream, besides what it reads or writes; nil for none.
    public final var label: String? {
        get { engine.state.withLock { $0.name?.label } }
        set { engine.state.withLock { $0.name = .relabel($0.name, newValue) } }
    }

    /// Opens the stream. Does nothing unless its status is ``Status/notOpen``.
    ///
    /// Files, descriptors, memory and bound pairs are open, or have failed, when it returns. An error shows
    /// in ``streamStatus`` and ``streamError``, and is delivered as ``Event/errorOccurred``. Opening a file waits as long as
    /// libdispatch can create no thread.
    open func open() { engine.open() }

    /// Closes the stream, removes it from every run loop, and releases its resources. Its properties stay
    /// readable.
    ///
    /// Bytes that were accepted for a file are written before it returns. Those for a socket, pipe or
    /// terminal that are still in the kernel or a write buffer are sent in the background; the process does
    /// not exit before that, for up to five seconds. A socket is shut down first, and input that still
    /// arrives is read and dropped, so that unread input does not make the kernel discard written bytes. The
    /// connection is reset if the peer takes no byte for the ``ConnectionOptions/writeTimeout``, which is 30 seconds unless
    /// it is set, or has not taken all of them within the ``ConnectionOptions/closeTimeout``: unless that is set, within 30
    /// seconds and one more for each KiB.
    ///
    /// The kernel closes sockets that are still open when the process exits, and discards unsent bytes if
    /// there is unread input: close streams before that. In a child of fork(2), closing a stream of the
    /// parent closes its descriptor and does nothing else; what the library has opened for it besides, to send
    /// pending bytes or to connect, stays open in the child until that calls exec or exits.
    ///
    /// If accepted bytes cannot be written or sent, the status becomes ``Status/error``, perhaps later.
    /// Otherwise it is ``Status/closed``. The stream cannot be opened again. Does nothing before ``open()``: a
    /// stream that is never opened closes its descriptor when it is released.
    open func close() { engine.close() }

    /// The stream's current state.
    open var streamStatus: Status { engine.status }

    /// Why the stream failed: an ``IOError``, or ReactorTLS's `TLSError`. Nil unless the status is ``Status/error``.
    open var streamError: (any Error)? { engine.error }

    /// Delivers events on `aRunLoop`'s thread while it runs in `mode`.
    ///
    /// A stream may be in any number of modes of one loop. Scheduling it on another loop moves it there, with the events that
    /// wait to be delivered: it is in `mode` of that loop only. Cocoa's may be on several loops at once. Scheduling it on a
    /// loop whose thread has ended changes nothing.
    ///
    /// A stream may be opened, scheduled and given a delegate in any order.
    open func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        engine.schedule(in: aRunLoop, mode)
    }

    /// Removes the stream from `mode` of `aRunLoop`, however often it was scheduled there. Does nothing if the stream is on
    /// another loop.
    open func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        engine.remove(from: aRunLoop, mode)
    }

    /// Delivers events on `queue`, and no longer on a run loop: Core Foundation's
    /// `CFReadStreamSetDispatchQueue`.
    ///
    /// Events are delivered in order and one at a time, even on a concurrent queue. Nil, or scheduling the
    /// stream on a run loop, ends the delivery on a queue; nil leaves a stream on its run loop. No event is delivered on a
    /// queue after that, nor after ``close()``, unless another thread called it while the delegate was already being called.
    ///
    /// A thread of this library waits for the stream meanwhile. If it cannot be created (pthread_create(3)), or
    /// libdispatch has no descriptors for its threads, the stream fails.
    open func setDispatchQueue(_ queue: DispatchQueue?) {
        guard let queue else { return setQueue(nil) }
        setQueue(
            { callback in queue.async(execute: DispatchWorkers.noted(callback)) },
            usesWorkers: queue !== DispatchQueue.main)
    }

    /// As ``setDispatchQueue(_:)``, for queues of any kind.
    ///
    /// - Parameter usesWorkers: Whether the queue's callbacks run on threads of libdispatch.
    package func setQueue(_ enqueue: StreamQueue.Enqueue?, usesWorkers: Bool = false) {
        engine.setQueue(enqueue, usesWorkers: usesWorkers)
    }

    /// The value of a property; nil if the stream has no such property, or no value for it now.
    open func property(forKey key: PropertyKey) -> Any? {
        engine.backend.property(key) ?? StreamProperties.bridge?.property(key, of: self)
    }

    /// Sets a property. Returns false if the stream has no such property, or can no longer change it.
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
