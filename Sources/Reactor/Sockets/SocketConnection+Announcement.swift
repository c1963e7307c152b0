import Synchronization

// Both halves hold their events until both are open, or until the first half's loop or queue has made one pass. Otherwise
// the first delegate could write to an output that isn't open yet: a local connection completes before the client's next
// line. Then openCompleted becomes pending in both, before either looks for bytes or space.
//
// Halves on different threads deliver independently from then on.

extension SocketConnection {
    enum Announcement {
        /// The client may be about to open the other half.
        case awaited
        /// It has opened or closed the other half, or a pass has completed. The connection may still be in the making.
        case due
        case made
    }

    /// Whether the halves deliver events, and may look for bytes and space.
    var isAnnounced: Bool { !isPair || announced.load(ordering: .acquiring) }

    /// A pass of a half's loop or queue has completed since it was opened.
    func passCompleted() {
        state.withLock { $0.passCompleted() }
        releaseEvents()
    }

    /// Releases the events of both halves if that is due, and the connection is made or has failed.
    ///
    /// - Parameter half: The half that is being opened: its engine refreshes itself after that.
    /// - Returns: Whether it did that now.
    @discardableResult
    func releaseEvents(opening half: Half? = nil) -> Bool {
        guard let engines = state.withLock({ $0.takeAnnouncement() }) else { return false }
        engines.input?.release()
        engines.output?.release()
        announced.store(true, ordering: .releasing)
        if let half { notify(half.other) } else { notifyBoth() }
        return true
    }
}

extension SocketConnection.State {
    /// The client has opened or closed the other half, or had the time for that.
    mutating func passCompleted() { if announcement == .awaited { announcement = .due } }

    /// The engines whose events to release; nil if it is not the time.
    fileprivate mutating func takeAnnouncement() -> SocketConnection.Halves<StreamEngine?>? {
        guard announcement == .due, hasOpened else { return nil }
        if case .waiting = progress { return nil }
        announcement = .made
        return engines
    }
}
