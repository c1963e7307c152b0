import Synchronization

// When the halves of a connection deliver events.
//
// The first half that is opened connects, on another thread, and a connection of the same machine is up before the
// client's next line, which opens the other half. Until then the client is not prepared for events: the delegate of
// the first half would write to an output that is not open. So both halves hold their events until both are open, or
// a turn of the first one's loop or queue has passed. Then openCompleted becomes pending in both, before either looks
// for bytes or space.
//
// Halves on different threads deliver independently from then on.

extension SocketConnection {
    enum Announcement {
        /// The client may be about to open the other half.
        case awaited
        /// It has opened or closed the other half, or a turn has passed. The connection may still be in the making.
        case due
        case made
    }

    /// Whether the halves deliver events, and may look for bytes and space.
    var isAnnounced: Bool { !isPair || announced.load(ordering: .acquiring) }

    /// Releases the events of a half that was opened after the announcement.
    func releaseLate(_ engine: StreamEngine) {
        if isPair, state.withLock({ $0.announcement == .made }) { engine.release() }
    }

    /// A turn of a half's loop or queue has passed since it was opened.
    func endTurn() {
        state.withLock { $0.endTurn() }
        announceOpening()
    }

    /// Releases the events of both halves if that is due, and the connection is made or has failed.
    ///
    /// - Returns: Whether it did that now.
    @discardableResult
    func announceOpening() -> Bool {
        guard let (input, output) = state.withLock({ $0.takeAnnouncement() }) else { return false }
        input?.release()
        output?.release()
        announced.store(true, ordering: .releasing)
        notify(.input)
        notify(.output)
        return true
    }

    /// Notifies both halves that the connection is made, or has failed.
    func notifyOfOpening() {
        if announceOpening() { return }
        notify(.input)
        notify(.output)
    }
}

extension SocketConnection.State {
    /// The client has opened or closed the other half, or had the time for that.
    mutating func endTurn() { if announcement == .awaited { announcement = .due } }

    /// The engines whose events to release; nil if it is not the time.
    fileprivate mutating func takeAnnouncement() -> (input: StreamEngine?, output: StreamEngine?)? {
        guard announcement == .due, hasOpened else { return nil }
        if case .waiting = progress { return nil }
        announcement = .made
        return (input, output)
    }
}
