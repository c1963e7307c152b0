import Synchronization

/// Brings values from any thread to a run loop's thread, in order, as they come.
///
/// ```swift
/// let answers = Mailbox<[UInt8]> { _, answer in output.write(answer) }
/// DispatchQueue.global().async {
///     for number in 1...3 { answers.post(Array("\(number)\n".utf8)) }
/// }
/// ```
///
/// The handler is called for each message, in the order of posting, while the loop runs in one of the modes: in
/// a pass, for those that were there when their turn came. A burst of messages wakes a sleeping loop once, and
/// none needs any memory but its own place. To the loop a mailbox is a ``RunLoop/Source``: while it is open it
/// keeps its modes from being empty, and messages make `run(mode:before:)` return.
///
/// The handler may do anything: post, and what it posts comes in the next pass; close the mailbox; run the
/// loop, in which no message is handled before this one is done with. It may capture what it likes: it is
/// called and destroyed on the loop's thread.
///
/// A mailbox lives as long as somebody holds it or a message waits in it, and is then closed: messages are not
/// lost by letting go of it. It is also closed when the loop's thread ends. A handler that captures its own
/// mailbox, and does not just use the one it is given, keeps it until ``close()``.
///
/// Messages and the loop's other callouts have no order among each other: a hand-off's completion may overtake
/// what its processor has posted. A message that the completion posts does not.
///
/// Nothing bounds what waits. To do that, have the sender wait for its consumer:
/// ``ChunkHandoff/suspend()`` stops what would bring more.
public final class Mailbox<Message: Sendable>: Sendable {
    /// Receives a message.
    public typealias Handler = (Mailbox<Message>, Message) -> Void

    private struct Contents: Sendable {
        /// Nil once the mailbox has been closed.
        var handler: HomeBound<Handler>?
        var source: RunLoop.Source?
        var waiting: [Message] = []
        /// Storage that deliveries use again and again; empty.
        var spare: [Message] = []
        /// The mailbox, while messages wait; they have been announced then.
        var keeper: Mailbox<Message>?
    }

    private let contents: Mutex<Contents>
    private let home: RunLoop
    /// Looked at before each message.
    private let isClosed = Flag()

    /// Makes a mailbox on the calling thread's loop.
    ///
    /// - Parameters:
    ///   - modes: In which modes of the loop messages are handled.
    ///   - handler: Called for each message.
    /// - Precondition: There is at least one mode.
    public init(inModes modes: [RunLoop.Mode] = [.default], handler: @escaping Handler) {
        precondition(!modes.isEmpty, "a mailbox in no mode would never be emptied")
        home = .current
        contents = Mutex(Contents(handler: HomeBound(handler, on: home)))
        let source = RunLoop.Source(
            cancelled: { [weak self] _, _ in self?.close() }, perform: { [weak self] in self?.deliver() })
        contents.withLock { $0.source = source }
        for mode in modes { home.add(source, forMode: mode) }
        if home.inbox.isClosed { close() }
    }

    deinit { close() }

    /// Whether messages are taken.
    public var isOpen: Bool { !isClosed.isRaised }

    /// Leaves a message for the handler. From any thread.
    ///
    /// - Returns: False if the mailbox has been closed, or the loop's thread has ended: then the message is let
    ///   go of. One that has been taken is let go of too if that happens before it is handled.
    @discardableResult
    public func post(_ message: Message) -> Bool {
        let (isTaken, source) = contents.withLock { contents -> (Bool, RunLoop.Source?) in
            guard contents.handler != nil else { return (false, nil) }
            contents.waiting.append(message)
            guard contents.keeper == nil else { return (true, nil) }
            contents.keeper = self
            return (true, contents.source)
        }
        if let source {
            source.signal()
            home.wakeUp()
        }
        return isTaken
    }

    /// Takes no more messages, drops those that have not been handled, and lets go of the handler. From any
    /// thread, the handler included.
    ///
    /// No call of the handler begins after this on the loop's thread; on others, one that is just about to
    /// begin still does. The modes are then kept by others, or empty.
    public func close() {
        isClosed.raise()
        var dropped = Contents()
        contents.withLock { swap(&$0, &dropped) }
        dropped.source?.invalidate()
    }

    /// How many messages there is storage for.
    var keptCapacity: Int { contents.withLock { $0.waiting.capacity + $0.spare.capacity } }

    // MARK: On the loop's thread

    /// Calls the handler for what waits. Not called within itself: the source sees to that.
    private func deliver() {
        var handler: Handler?
        var batch: [Message] = []
        contents.withLock { contents in
            handler = contents.handler?.closure
            swap(&batch, &contents.spare)
            swap(&batch, &contents.waiting)
            contents.keeper = nil  // this call has it
        }
        guard let handler else { return }
        batch.reverse()
        while !isClosed.isRaised, let message = batch.popLast() { handler(self, message) }
        batch.removeAll(keepingCapacity: batch.capacity <= BlockQueue.keptCapacity)
        contents.withLock { if $0.handler != nil { swap(&batch, &$0.spare) } }
    }
}
