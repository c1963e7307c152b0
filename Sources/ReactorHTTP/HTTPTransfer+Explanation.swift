import Dispatch
import Reactor

extension HTTPTransfer {
    /// The state of a transfer when libcurl last returned.
    enum Phase: Sendable, Equatable {
        /// The session's loop has not begun it.
        case started
        /// Waits for others of its host.
        case queued
        case connecting
        case sending
        case receiving
        /// Waits until its consumer has taken what was received.
        case receivingPaused
        /// Waits for the bytes of the request's body.
        case sendingPaused
        /// Waits for its next attempt.
        case delayed(until: Deadline)
        /// Writes what was received.
        case finishing
    }

    /// Says in a sentence why the completion is not being called; for a person, so the wording may change.
    ///
    /// ```swift
    /// print(transfer.explain())
    /// // The transfer of http://example.org/ cannot continue: the main run loop runs in tracking, and it is only in default.
    /// ```
    public func explain() -> String {
        let title = "The transfer of \(HTTPError.withoutUser(request.target))"
        if let delivery = outbox.explanation { return "\(title) \(delivery)." }
        if isSuspended { return "\(title) is suspended: call resume()." }
        guard session.runLoop.serves(session.modes) else {
            return
                "\(title) cannot continue: \(session.runLoop.reasonForDelay(of: "it", inModes: session.modes))."
        }
        return "\(title) \(explanation(of: phase.withLock { $0 }))."
    }

    private func explanation(of phase: Phase) -> String {
        switch phase {
        case .started: "is about to begin"
        case .queued:
            "waits for another transfer to \(HTTPError.withoutUser(request.origin)) to end: maxConnectionsPerHost is reached"
        case .connecting: "is connecting: by looking up the name, TCP or TLS"
        case .sending where body == nil: "has sent its request, and waits for the response"
        case .sending:
            "has sent \(counted(progress.bytesSent, "byte")) of its body, and waits for the response"
        case .receiving: "receives the response: \(received) so far"
        case .receivingPaused: "waits for its consumer, which has not taken what was received: \(received)"
        case .sendingPaused:
            "waits for the body of the request: \(counted(progress.bytesSent, "byte")) so far"
        case .delayed(let date): "will be sent again in \(Deadline.now.duration(to: date).rounded)"
        case .finishing: "writes what was received: \(received)"
        }
    }

    private var received: String {
        let progress = progress
        return counted(progress.bytesReceived, "byte") + (progress.bytesExpected.map { " of \($0)" } ?? "")
    }
}

extension Outbox {
    /// Why events that are due have not been delivered, or that there will be no more; nil otherwise.
    var explanation: String? {
        let (count, isCalling, hasEnded) = state.withLock {
            ($0.events.count, $0.isCalling, $0.callbacks == nil)
        }
        if hasEnded { return "has ended, and its completion was called" }
        if isCalling { return "has a callback that is being called" }
        guard count > 0 else { return nil }
        let events = "has \(counted(count, "event")) to deliver"
        return switch delivery.kind {
        case .session: events + reason(runLoop, modes)
        case .runLoop(let runLoop, let modes): events + reason(runLoop, modes)
        case .queue(let queue):
            "\(events): its queue\(queue.label.isEmpty ? "" : " '\(queue.label)'") has not called it back yet"
        case .pulled: "\(events): its task has not taken them yet"
        }
    }

    private func reason(_ runLoop: RunLoop, _ modes: [RunLoop.Mode]) -> String {
        ": \(runLoop.reasonForDelay(of: "a callback", inModes: modes))"
    }
}
