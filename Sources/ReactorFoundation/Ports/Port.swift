public import Foundation
public import Reactor

/// An endpoint for messages, which run loops deliver.
///
/// Replaces Foundation's class, whose ports cannot be added to Reactor's run loops. A plain `Port()` receives
/// nothing, but keeps a loop running, as Cocoa code uses it on long-lived threads. ``SocketPort`` receives
/// messages.
///
/// All methods may be called from any thread. A loop retains its ports until they are removed or invalidated,
/// or its thread ends.
///
/// - Note: A subclass must call ``invalidate()`` in its `deinit`. This class's `deinit` posts the
///   notification only for plain ports, because the subclass's state is already destroyed when it runs.
open class Port: NSObject, NSCopying, @unchecked Sendable {
    /// Posted when a port becomes invalid, on the thread that invalidates or releases it. The object is the
    /// port, which observers must not retain.
    public static let didBecomeInvalidNotification = Notification.Name("NSPortDidBecomeInvalidNotification")

    // `@unchecked Sendable` is correct: the state is in a mutex, and the delegate is used only with its lock
    // held.

    private struct State {
        var isValid = true
        /// The port's source in its loops. The loops retain the source, and the source retains the port.
        weak var source: RunLoop.Source?
    }

    private let state = Mutex(State())
    private let delegateLock = Mutex(())
    private weak var storedDelegate: (any PortDelegate)?

    /// Creates a port that receives nothing.
    public override init() {}

    deinit {
        if Swift.type(of: self) == Port.self { becomeInvalid() }
    }

    /// Returns the port itself.
    open func copy(with zone: NSZone? = nil) -> Any { self }

    /// Whether the port has not been invalidated.
    open var isValid: Bool { state.withLock { $0.isValid } }

    /// Removes the port from its loops, releases its resources, and posts ``didBecomeInvalidNotification``.
    /// No further message is delivered.
    ///
    /// An override that does not call `super` must post the notification itself, which removes the port from
    /// its loops.
    open func invalidate() { becomeInvalid() }

    /// Sets the delegate, which is not retained.
    open func setDelegate(_ anObject: (any PortDelegate)?) {
        delegateLock.withLock { _ in storedDelegate = anObject }
    }

    /// The delegate, which receives the port's messages.
    open func delegate() -> (any PortDelegate)? {
        var delegate: (any PortDelegate)?
        delegateLock.withLock { _ in delegate = storedDelegate }
        return delegate
    }

    /// Adds the port to `mode` of `runLoop`. `RunLoop.add(_:forMode:)` calls this method.
    ///
    /// A subclass may override this method to learn the modes that the port is added to. It is called once
    /// for each mode, on the thread that adds the port. An override need not call `super`.
    open func schedule(in runLoop: RunLoop, forMode mode: RunLoop.Mode) {
        addSource(to: runLoop, forMode: mode)
    }

    /// Removes the port from `mode` of `runLoop`. `RunLoop.remove(_:forMode:)` calls this method.
    ///
    /// A subclass may override this method to learn the modes that the port is removed from. An override need
    /// not call `super`.
    open func remove(from runLoop: RunLoop, forMode mode: RunLoop.Mode) {
        removeSource(from: runLoop, forMode: mode)
    }

    /// The number of bytes that the port reserves at the start of a message's first component. Always zero.
    open var reservedSpaceLength: Int { 0 }

    /// Sends a message with the number 0, like ``send(before:msgid:components:from:reserved:)``.
    open func send(
        before limitDate: Date, components: NSMutableArray?, from receivePort: Port?,
        reserved headerSpaceReserved: Int
    ) -> Bool {
        send(
            before: limitDate, msgid: 0, components: components, from: receivePort,
            reserved: headerSpaceReserved)
    }

    /// Sends a message to this port. A plain port cannot receive messages, and returns false.
    open func send(
        before limitDate: Date, msgid msgID: Int, components: NSMutableArray?, from receivePort: Port?,
        reserved headerSpaceReserved: Int
    ) -> Bool { false }

    // MARK: Run loops

    /// Delivers the next message. Called on a loop's thread.
    func deliver() {}

    /// Whether there is a message to deliver.
    var hasMessages: Bool { false }

    /// Signals the source and wakes its loops, one of which then calls ``deliver()``.
    final func signalSource() {
        guard let source = state.withLock({ $0.source }) else { return }
        source.signal()
        for loop in source.loops { loop.wakeUp() }
    }

    /// Invalidates the port and posts the notification, unless the port is already invalid.
    final func becomeInvalid() {
        guard invalidateSource() else { return }
        NotificationCenter.default.post(name: Port.didBecomeInvalidNotification, object: self)
    }

    /// Marks the port as invalid and removes it from its loops. Returns false if the port was already
    /// invalid.
    @discardableResult
    fileprivate final func invalidateSource() -> Bool {
        let (wasValid, source) = state.withLock { state in
            defer { state.isValid = false }
            return (state.isValid, state.source)
        }
        if wasValid { source?.invalidate() }
        return wasValid
    }

    /// Removes a port from its loops when a subclass that overrides ``invalidate()`` without calling `super`
    /// posts the notification.
    private static let invalidationObserver = Mutex(
        NotificationCenter.default.addObserver(
            forName: didBecomeInvalidNotification, object: nil, queue: nil
        ) { notification in (notification.object as? Port)?.invalidateSource() })

    /// Adds the source to `mode` of `loop`. Returns false if it is already there, or the port is invalid.
    @discardableResult
    fileprivate final func addSource(to loop: RunLoop, forMode mode: RunLoop.Mode) -> Bool {
        guard let source = makeSource(), !loop.contains(source, forMode: mode) else { return false }
        loop.add(source, forMode: mode)
        guard loop.contains(source, forMode: mode) else { return false }
        if hasMessages { signalSource() }
        return true
    }

    /// Removes the source from `mode` of `loop`. Returns false if it is not there.
    @discardableResult
    fileprivate final func removeSource(from loop: RunLoop, forMode mode: RunLoop.Mode) -> Bool {
        guard let source = state.withLock({ $0.source }), loop.contains(source, forMode: mode) else {
            return false
        }
        loop.remove(source, forMode: mode)
        return true
    }

    /// Returns the port's source, creating it if no loop has it; nil if the port is invalid.
    private func makeSource() -> RunLoop.Source? {
        guard isValid else { return nil }
        Port.invalidationObserver.withLock { _ in }
        return state.withLock { [self] state in
            guard state.isValid else { return nil }
            if let source = state.source { return source }
            let source = RunLoop.Source { [self] in deliver() }
            state.source = source
            return source
        }
    }
}

/// A plain port: Linux has no Mach ports. It receives nothing, but keeps a loop running.
public typealias NSMachPort = Port
/// A plain port: Linux has no local message ports. It receives nothing, but keeps a loop running.
public typealias MessagePort = Port

extension Reactor.RunLoop {
    /// Adds `port` to `mode`, which is then not empty. May be called from any thread.
    ///
    /// Adding an invalid port, or one that is already in the mode, does nothing.
    public func add(_ port: Port, forMode mode: Mode) {
        if port.addSource(to: self, forMode: mode) { port.schedule(in: self, forMode: mode) }
    }

    /// Removes `port` from `mode`, if it is there. May be called from any thread.
    public func remove(_ port: Port, forMode mode: Mode) {
        if port.removeSource(from: self, forMode: mode) { port.remove(from: self, forMode: mode) }
    }
}

// MARK: - Messages

/// A receiver of a port's messages.
public protocol PortDelegate: AnyObject {
    /// Handles a message. Called once for each message, on the thread of a run loop that the port is in; on
    /// one thread, never reentrantly.
    func handle(_ message: PortMessage)
}

extension PortDelegate {
    /// Ignores the message.
    public func handle(_ message: PortMessage) {}
}

/// A message between ports: a number and components, which are data or ports.
open class PortMessage: NSObject {
    /// The message's number, which the sender chooses.
    open var msgid: UInt32 = 0
    /// For a received message, the port to reply to, or nil if the sender named none. For a message to send,
    /// its destination.
    open private(set) var sendPort: Port?
    /// For a received message, the port at which it arrived. For a message to send, the port to reply to.
    open private(set) var receivePort: Port?
    /// The components: `NSData` and ``Port`` objects.
    open private(set) var components: [AnyObject]?

    /// Creates a message to send.
    ///
    /// - Parameters:
    ///   - sendPort: The destination.
    ///   - receivePort: The port to reply to.
    ///   - components: `NSData` or ``SocketPort`` objects.
    public init(sendPort: Port?, receivePort: Port?, components: [AnyObject]?) {
        self.sendPort = sendPort
        self.receivePort = receivePort
        self.components = components
    }

    /// Sends the message to its ``sendPort``, like ``Port/send(before:msgid:components:from:reserved:)``.
    open func send(before date: Date) -> Bool {
        guard let sendPort else { return false }
        let array = components.map { NSMutableArray(array: $0) }
        return sendPort.send(
            before: date, msgid: Int(msgid), components: array, from: receivePort,
            reserved: sendPort.reservedSpaceLength)
    }
}
