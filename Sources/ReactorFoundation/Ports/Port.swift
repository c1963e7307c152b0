public import Foundation
public import Reactor

/// Something that run loops can be asked to attend to, and that messages can come in at.
///
/// It takes the place of Foundation's, which cannot be added to this library's run loops. A plain `Port()` receives
/// nothing: added to a loop it keeps that running, as is done in Cocoa on threads that are to live on. ``SocketPort``
/// is the one that receives.
///
/// All methods may be called from any thread. A loop keeps the ports alive that are in it; they leave it when they are
/// invalidated, and when its thread ends.
///
/// - Note: A subclass calls ``invalidate()`` in its `deinit`: by the time of this class's the subclass is no more, and
///   the notification is not posted.
open class Port: NSObject, NSCopying, @unchecked Sendable {
    /// Posted when a port has become invalid, on the thread that invalidates it or lets go of it; the object is the
    /// port, which must not be kept.
    public static let didBecomeInvalidNotification = Notification.Name("NSPortDidBecomeInvalidNotification")

    // `@unchecked Sendable` is right: the state is in a mutex, and the delegate is touched with the lock held.

    private struct State {
        var isValid = true
        /// What the port is in a loop as. Loops alone keep it alive, and it keeps the port.
        weak var stand: RunLoop.Source?
    }

    private let state = Mutex(State())
    private let delegateLock = Mutex(())
    private weak var storedDelegate: (any PortDelegate)?

    /// Makes a port that receives nothing.
    public override init() {}

    deinit {
        if Swift.type(of: self) == Port.self { retire() }
    }

    /// A port's copy is the port itself.
    open func copy(with zone: NSZone? = nil) -> Any { self }

    /// Whether the port has not been invalidated.
    open var isValid: Bool { state.withLock { $0.isValid } }

    /// Takes the port out of its loops for good, releases what it holds, and posts ``didBecomeInvalidNotification``.
    /// No message is delivered that has not begun to be.
    ///
    /// A subclass that overrides this without calling `super` posts the notification itself: the port leaves its loops
    /// when that is posted.
    open func invalidate() { retire() }

    /// Sets who is handed messages; not kept alive.
    open func setDelegate(_ anObject: (any PortDelegate)?) {
        delegateLock.withLock { _ in storedDelegate = anObject }
    }

    /// Who is handed messages.
    open func delegate() -> (any PortDelegate)? {
        var delegate: (any PortDelegate)?
        delegateLock.withLock { _ in delegate = storedDelegate }
        return delegate
    }

    /// Adds the port to `mode` of `runLoop`, as ``Reactor/RunLoop/add(_:forMode:)`` does, which calls this.
    ///
    /// A subclass overrides this to learn which modes the port gets into: it is called once for each, by the thread
    /// that adds the port, and need not call `super`.
    open func schedule(in runLoop: RunLoop, forMode mode: RunLoop.Mode) { enter(mode, of: runLoop) }

    /// Removes the port from `mode` of `runLoop`, as ``Reactor/RunLoop/remove(_:forMode:)`` does, which calls this.
    ///
    /// A subclass overrides this to learn which modes the port leaves, and need not call `super`.
    open func remove(from runLoop: RunLoop, forMode mode: RunLoop.Mode) { leave(mode, of: runLoop) }

    /// How many bytes at the beginning of a message's first component are the port's own to use: none.
    open var reservedSpaceLength: Int { 0 }

    /// As ``send(before:msgid:components:from:reserved:)``, with the number 0.
    open func send(
        before limitDate: Date, components: NSMutableArray?, from receivePort: Port?,
        reserved headerSpaceReserved: Int
    ) -> Bool {
        send(
            before: limitDate, msgid: 0, components: components, from: receivePort,
            reserved: headerSpaceReserved)
    }

    /// Sends a message to whoever has this port. Here nobody has: false.
    open func send(
        before limitDate: Date, msgid msgID: Int, components: NSMutableArray?, from receivePort: Port?,
        reserved headerSpaceReserved: Int
    ) -> Bool { false }

    // MARK: In loops

    /// Delivers what has come in, on a loop's thread.
    func deliver() {}

    /// Whether there is something to deliver.
    var hasArrivals: Bool { false }

    /// Has a loop that the port is in deliver what has come in.
    final func announceArrival() {
        guard let stand = state.withLock({ $0.stand }) else { return }
        stand.signal()
        for loop in stand.loops { loop.wakeUp() }
    }

    /// Becomes invalid, and says so unless the port was so already.
    final func retire() {
        guard leaveLoops() else { return }
        NotificationCenter.default.post(name: Port.didBecomeInvalidNotification, object: self)
    }

    /// Becomes invalid. False if the port was so already.
    @discardableResult
    fileprivate final func leaveLoops() -> Bool {
        let (wasValid, stand) = state.withLock { state in
            defer { state.isValid = false }
            return (state.isValid, state.stand)
        }
        if wasValid { stand?.invalidate() }
        return wasValid
    }

    /// Removes a port from its loops when it posts its invalidation itself, as a subclass may that overrides
    /// ``invalidate()``.
    private static let invalidationObserver = Mutex(
        NotificationCenter.default.addObserver(
            forName: didBecomeInvalidNotification, object: nil, queue: nil
        ) { notification in (notification.object as? Port)?.leaveLoops() })

    /// Gets into `mode` of `loop`. False if the port is there already, or invalid.
    @discardableResult
    fileprivate final func enter(_ mode: RunLoop.Mode, of loop: RunLoop) -> Bool {
        guard let stand = takeStand(), !loop.contains(stand, forMode: mode) else { return false }
        loop.add(stand, forMode: mode)
        guard loop.contains(stand, forMode: mode) else { return false }
        if hasArrivals { announceArrival() }
        return true
    }

    /// Leaves `mode` of `loop`. False if the port is not there.
    @discardableResult
    fileprivate final func leave(_ mode: RunLoop.Mode, of loop: RunLoop) -> Bool {
        guard let stand = state.withLock({ $0.stand }), loop.contains(stand, forMode: mode) else {
            return false
        }
        loop.remove(stand, forMode: mode)
        return true
    }

    /// What the port is in loops as; nil if it is invalid.
    private func takeStand() -> RunLoop.Source? {
        guard isValid else { return nil }
        Port.invalidationObserver.withLock { _ in }
        return state.withLock { [self] state in
            guard state.isValid else { return nil }
            if let stand = state.stand { return stand }
            let stand = RunLoop.Source { [self] in deliver() }
            state.stand = stand
            return stand
        }
    }
}

/// In Cocoa a port of the kernel's; here, where there are none, one that receives nothing but keeps a loop running.
public typealias NSMachPort = Port
/// In Cocoa a port within one machine; here, where there is none, one that receives nothing but keeps a loop running.
public typealias MessagePort = Port

/// Is handed the messages that come in at a port.
public protocol PortDelegate: AnyObject {
    /// Called on the thread of a run loop that the port is in, once for each message. Never inside itself, for one loop.
    func handle(_ message: PortMessage)
}

extension PortDelegate {
    /// Ignores the message.
    public func handle(_ message: PortMessage) {}
}

extension Reactor.RunLoop {
    /// Has `port` served in `mode`, which it keeps from being empty; from any thread.
    ///
    /// Adding an invalid port, or one that is in the mode already, does nothing.
    public func add(_ port: Port, forMode mode: Mode) {
        if port.enter(mode, of: self) { port.schedule(in: self, forMode: mode) }
    }

    /// Takes `port` out of `mode`, if it is there; from any thread.
    public func remove(_ port: Port, forMode mode: Mode) {
        if port.leave(mode, of: self) { port.remove(from: self, forMode: mode) }
    }
}
