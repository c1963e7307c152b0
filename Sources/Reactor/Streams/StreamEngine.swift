import Synchronization
import SystemPackage

/// What a stream is made of: its machine, its backend, and its place on run loops. Safe from any thread.
///
/// On each loop that the stream is scheduled on it has a station: a descriptor source, with or without a
/// descriptor, through which the kernel tells of bytes, and by which the engine itself asks for the loop's
/// attention. Both come to ``serve(_:_:)``, the only place that calls the delegate.
final class StreamEngine: Sendable {
    struct State: ~Copyable {
        var machine = StreamMachine()
        /// The loops that the stream is scheduled on. None when it is over.
        var homes = StreamHomes()
        /// The queue that events are told on, if that is no loop: the only home then is a hidden one.
        var queue: StreamQueue?
        /// Whether a callout is on the queue, and has not begun.
        var isEnqueued = false
        /// Whether the delegate is being called, or about to be on a queue: it is not called again inside that, nor by
        /// another loop.
        var isTelling = false
        /// Whether the last event to be delivered found no delegate: it waits, and so does all that follows it.
        var lacksDelegate = false
        /// Whether a delegate has been set since the stream's delegate was last looked up.
        var hasNewDelegate = false
        /// Whether bytes were moved outside the delegate's callout, or on another thread than the loop's: they may be
        /// what the kernel has told of.
        var hasMovedOutside = false
        /// How the backend lets know that bytes can be moved; known once it is open.
        var readying = Readying.backend
        /// What an output knows of the room for its next write.
        var room = Room.assumed
        /// Whether the stream is of a subclass, which may have a delegate of its own making.
        var isSubclassed = false
        /// Whether a hand-off owns the stream.
        var isHandedOver = false
    }

    let backend: any StreamBackend
    let event: Stream.Event
    let state = Mutex(State())
    /// The stream, which owns the engine, and the delegate that it has been given.
    ///
    /// `nonisolated(unsafe)` is right because both are only touched with `state` locked.
    private nonisolated(unsafe) weak var owner: Stream?
    private nonisolated(unsafe) weak var givenDelegate: (any StreamDelegate)?

    init(_ backend: any StreamBackend) {
        self.backend = backend
        event = backend.event
    }

    func serve(_ stream: Stream) {
        let isSubclassed = type(of: stream) != InputStream.self && type(of: stream) != OutputStream.self
        state.withLock { state in
            unsafe owner = stream
            state.isSubclassed = isSubclassed
        }
    }

    /// The delegate that the stream has been given.
    var delegate: (any StreamDelegate)? {
        get {
            var delegate: (any StreamDelegate)?
            state.withLock { _ in delegate = unsafe givenDelegate }
            return delegate
        }
        set {
            // Kept until the lock is released: this may be the last reference.
            var former: (any StreamDelegate)?
            let isReady = state.withLock { state -> Bool in
                former = unsafe givenDelegate
                unsafe givenDelegate = newValue
                guard newValue != nil, former !== newValue || state.lacksDelegate else { return false }
                return state.welcomeDelegate()
            }
            withExtendedLifetime(former) {}
            if isReady { refresh() }
        }
    }

    /// Who is to be told: the stream, and its delegate unless the stream has to be asked.
    ///
    /// For use with `state` locked, and so nothing that is looked up may be let go of here: it might be the last
    /// reference.
    func audience(_ state: borrowing State) -> (Stream?, (any StreamDelegate)?) {
        unsafe (owner, state.isSubclassed ? nil : givenDelegate)
    }

    var status: Stream.Status { state.withLock { $0.machine.status } }

    var error: (any Error)? { state.withLock { $0.machine.error } }

    var isOpen: Bool { state.withLock { $0.machine.isOpen } }

    // MARK: Opening and closing

    func open() {
        guard state.withLock({ $0.machine.beginOpening() }) else { return }
        do throws(Errno) { try backend.open(for: self) } catch { fail(error) }
        // Closed from another thread meanwhile, which found nothing to release yet.
        if state.withLock({ $0.machine.isReleased }) { try? backend.close() }
        refresh()
    }

    /// Finds out how far an opening has come that takes its time; true while it goes on.
    @discardableResult
    func advanceOpening() -> Bool {
        guard status == .opening else { return false }
        switch backend.progress() {
        case .waiting: return true
        case .failed(let error): fail(error)
        case .ready, .atEnd:
            let readying = backend.readying
            state.withLock { state in
                state.machine.opened()
                state.readying = readying
                if backend.isAtEndWhenOpened { state.machine.reachEnd() }
            }
        }
        return false
    }

    /// Takes in a fault, unless the stream has been closed meanwhile.
    func fail(_ error: any Error) {
        let error = backend.refusal ?? error
        state.withLock { $0.machine.failUnlessReleased(error) }
    }

    /// Takes in that bytes which were accepted are lost, which is a fault of a closed stream too.
    func noteLostBytes(_ error: Errno) {
        state.withLock { $0.machine.fail(error) }
        refresh()
    }

    func close() {
        guard state.withLock({ $0.machine.close() }) else { return }
        leaveLoops()
        do throws(Errno) { try backend.close() } catch { state.withLock { $0.machine.fail(error) } }
    }

    /// Ends a stream that nobody holds any longer, opened or not.
    func retire() {
        close()
        leaveLoops()
        try? backend.close()
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? {
        backend.property(key) ?? StreamProperties.bridge?.property(key, native: backend.property)
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        // Past the end, or closed, no offset is used any more.
        guard key != .fileCurrentOffsetKey || status == .notOpen || isOpen else { return false }
        guard backend.setProperty(value, key) else { return false }
        refresh()
        return true
    }
}
