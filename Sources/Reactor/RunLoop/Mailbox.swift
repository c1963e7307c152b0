import Synchronization

/// Passes values from any thread to a run loop's thread, in order.
///
/// ```swift
/// let answers = Mailbox<[UInt8]> { _, answer in print(answer.count, "bytes") }
/// DispatchQueue.global().async {
///     for number in 1...3 { answers.post(Array("\(number)\n".utf8)) }
/// }
/// ```
///
/// The handler is called for each message, in the order of posting, while the loop runs in one of the modes. A pass
/// delivers the messages that were pending when the mailbox's turn came. A burst of messages wakes a sleeping loop once,
/// and a message needs no memory besides its own. To the loop a mailbox is a ``RunLoop/Source``: while it is open it keeps
/// its modes from being empty, and messages make `run(mode:before:)` return.
///
/// The handler may do anything: post messages, which the next pass delivers; close the mailbox; run the loop, which
/// delivers no further message before the handler has returned. It may capture values that are not `Sendable`: it is called
/// and destroyed on the loop's thread.
///
/// A mailbox with pending messages stays alive until they are delivered, even if the last reference to it is released. It is
/// closed when it is destroyed, and when the loop's thread ends. A handler that captures its own mailbox, instead of using
/// its parameter, keeps it alive until ``close()``.
///
/// Messages have no order relative to the loop's other callbacks: a hand-off's completion may be called before messages that
/// its processor posted. A message that the completion posts is delivered after those.
///
/// The number of pending messages is not limited. To limit it, make the sender wait for its consumer:
/// ``ChunkHandoff/suspend()`` stops the flow that posts more.
public final class Mailbox<Message: Sendable>: Sendable {
    typealias Handler = (Mailbox<Message>, Message) -> Void

    private struct Contents: Sendable {
        /// Nil once the mailbox has been closed.
        var handler: LoopOwned<Handler>?
        var source: RunLoop.Source?
        var pending: [Message] = []
        /// Storage that deliveries reuse; empty.
        var spare: [Message] = []
        /// The mailbox itself, from the first pending message, for which the source was signalled, to the delivery.
        var keptAlive: Mailbox<Message>?
    }

    private let contents: Mutex<Contents>
    private let loop: RunLoop
    private let title: @Sendable () -> String
    /// Read before each message.
    private let isClosed = Flag()

    /// Creates a mailbox on the calling thread's loop.
    ///
    /// - Parameters:
    ///   - modes: The modes of the loop in which messages are delivered.
    ///   - label: What dumps, ``LoopDiagnostics`` and explanations call the mailbox.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    ///   - handler: Called for each message.
    /// - Precondition: There is at least one mode.
    public convenience init(
        inModes modes: [RunLoop.Mode] = [.default], label: String? = nil, file: StaticString = #fileID,
        line: UInt = #line, handler: @escaping (Mailbox<Message>, Message) -> Void
    ) {
        require(!modes.isEmpty, "A mailbox in no mode would never deliver a message: name at least one mode.")
        let name = ItemName.make(label, file, line)
        self.init(modes, title: name.naming("mailbox"), handler: handler)
    }

    /// - Parameters:
    ///   - title: What messages call the mailbox.
    ///   - account: The name of its entry in the ledger; its title if this is nil.
    init(
        _ modes: [RunLoop.Mode], title: @autoclosure @escaping @Sendable () -> String, account: String? = nil,
        handler: @escaping Handler
    ) {
        (loop, self.title) = (.current, title)
        contents = Mutex(Contents(handler: LoopOwned(handler, on: loop)))
        let source = RunLoop.Source(
            named: title, account: account, cancelled: { [weak self] _, _ in self?.close() },
            perform: { [weak self] in self?.deliver() })
        contents.withLock { $0.source = source }
        for mode in modes { loop.add(source, forMode: mode) }
        if loop.inbox.isClosed { close() }
    }

    deinit { close() }

    /// Whether the mailbox accepts messages.
    package var isOpen: Bool { !isClosed.isRaised }

    /// Posts a message for the handler. May be called from any thread.
    ///
    /// - Returns: False if the mailbox has been closed or the loop's thread has ended, and the message was dropped. An
    ///   accepted message is dropped, too, if that happens before its delivery.
    @discardableResult
    public func post(_ message: Message) -> Bool {
        let (isAccepted, source) = contents.withLock { contents -> (Bool, RunLoop.Source?) in
            guard contents.handler != nil else { return (false, nil) }
            contents.pending.append(message)
            guard contents.keptAlive == nil else { return (true, nil) }
            contents.keptAlive = self
            return (true, contents.source)
        }
        if let source {
            source.signal()
            loop.wakeUp()
        }
        return isAccepted
    }

    /// Closes the mailbox: it refuses further messages, drops those that are pending, and releases the handler. May be
    /// called from any thread, and by the handler.
    ///
    /// Called on the loop's thread, no call of the handler begins afterwards; called on another thread, one that is about to
    /// begin still does. The mailbox no longer keeps its modes from being empty.
    public func close() {
        isClosed.raise()
        var dropped = Contents()
        contents.withLock { swap(&$0, &dropped) }
        dropped.source?.invalidate()
    }

    /// Says in a sentence why the handler is not being called; for a person, so the wording may change.
    ///
    /// May be called from any thread.
    ///
    ///     The mailbox has 3 messages: the main run loop is not running.
    public func explain() -> String {
        let title = title()
        guard !loop.inbox.belongsToParent else { return "The \(title) belongs to the parent process." }
        let (source, count) = contents.withLock { ($0.source, $0.pending.count) }
        guard let source, isOpen else { return "The \(title) is closed, or its loop has ended." }
        let messages = counted(count, "message")
        if source.isPerforming {
            let rest =
                count == 0 ? "" : ", and \(messages) \(count == 1 ? "waits" : "wait") for the next pass"
            return "The handler of the \(title) is being called\(rest)."
        }
        if count == 0 { return "The \(title) has no messages." }
        return "The \(title) has \(messages): \(source.reasonForDelay(of: "it"))."
    }

    /// Why the pending messages are not being delivered; nil if there are none.
    var reasonForDelay: String? {
        let source = contents.withLock { $0.pending.isEmpty ? nil : $0.source }
        return source?.reasonForDelay(of: "it")
    }

    /// How many messages there is storage for.
    var keptCapacity: Int { contents.withLock { $0.pending.capacity + $0.spare.capacity } }

    // MARK: On the loop's thread

    /// Calls the handler for the pending messages. The source ensures that this is not called within itself.
    private func deliver() {
        var handler: Handler?
        var batch: [Message] = []
        contents.withLock { contents in
            handler = contents.handler?.value
            swap(&batch, &contents.spare)
            swap(&batch, &contents.pending)
            contents.keptAlive = nil  // the caller has a reference
        }
        guard let handler else { return }
        batch.reverse()
        while !isClosed.isRaised, let message = batch.popLast() { handler(self, message) }
        batch.removeAll(keepingCapacity: batch.capacity <= BlockQueue.keptCapacity)
        contents.withLock { if $0.handler != nil { swap(&batch, &$0.spare) } }
    }
}
