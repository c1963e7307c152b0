import SystemPackage

/// What a stream's status and events may become. Pure: no descriptor, no loop, no clock.
///
/// An event is *raised* when it should be told, and *told* when the delegate gets it. A stream that has told
/// of bytes or of space tells again only after it has been read or written.
struct StreamMachine {
    private(set) var error: (any Error)?
    /// How many reads or writes have been finished.
    private(set) var transfers: UInt64 = 0
    private(set) var status = Stream.Status.notOpen
    // All bits are in the first byte: there are two of these for every connection.
    private var raisedBits: UInt8 = 0
    private var unansweredBits: UInt8 = 0
    private var isEndRaised = false
    /// Whether the stream has been closed, whatever its status says.
    private(set) var isReleased = false

    /// Raised, and not told yet.
    private(set) var raised: Stream.Event {
        get { Stream.Event(rawValue: UInt(raisedBits)) }
        set { raisedBits = UInt8(truncatingIfNeeded: newValue.rawValue) }
    }

    /// Told, and not answered yet by a read or a write.
    private(set) var unanswered: Stream.Event {
        get { Stream.Event(rawValue: UInt(unansweredBits)) }
        set { unansweredBits = UInt8(truncatingIfNeeded: newValue.rawValue) }
    }

    /// Whether bytes can be moved.
    var isOpen: Bool { status == .open || status == .reading || status == .writing }

    // MARK: Opening and closing

    mutating func beginOpening() -> Bool {
        guard status == .notOpen else { return false }
        status = .opening
        return true
    }

    mutating func opened() {
        guard status == .opening else { return }
        status = .open
        raised.insert(.openCompleted)
    }

    /// Ends the stream; true if there is something to release. An error outlives the closing.
    mutating func close() -> Bool {
        guard status != .notOpen, !isReleased else { return false }
        isReleased = true
        raised = []
        unanswered = []
        if status != .error { status = .closed }
        return true
    }

    /// A fault: told once, and nothing after it.
    mutating func fail(_ error: any Error) {
        guard status != .error else { return }
        // A closed stream may still learn that its last bytes were not written, but tells nobody.
        raised = isReleased ? [] : .errorOccurred
        unanswered = []
        status = .error
        self.error = error
    }

    /// As ``fail(_:)``, for what only closing has made fail.
    mutating func failUnlessReleased(_ error: any Error) {
        if !isReleased { fail(error) }
    }

    /// The end of the bytes, or of the room: told once; only a fault may follow.
    mutating func reachEnd() {
        guard isOpen else { return }
        status = .atEnd
        raised.subtract([.hasBytesAvailable, .hasSpaceAvailable])
        if !isEndRaised { raised.insert(.endEncountered) }
        isEndRaised = true
    }

    /// The end of the bytes that go out, because the client said so: it need not be told.
    mutating func finishWriting() {
        guard isOpen else { return }
        status = .atEnd
        isEndRaised = true
        raised.remove(.hasSpaceAvailable)
    }

    // MARK: Moving bytes

    /// Begins a read or a write, which answers what was told, and makes what was not told yet unnecessary.
    mutating func begin(_ status: Stream.Status, answering event: Stream.Event) {
        if self.status == .open { self.status = status }
        raised.subtract(event)
        unanswered.subtract(event)
    }

    /// Ends a read or a write: what was raised meanwhile may be what has just been moved.
    mutating func finish(answering event: Stream.Event) {
        if status == .reading || status == .writing { status = .open }
        raised.subtract(event)
        transfers += 1
    }

    // MARK: Events

    /// Raises the event that says that the stream can be read, or written, unless that has been done already.
    mutating func raise(_ event: Stream.Event) {
        if isOpen, unanswered.isDisjoint(with: event) { raised.insert(event) }
    }

    /// As ``raise(_:)``, for what was found out when there had been `transfers` reads or writes: another one may have
    /// moved what was found. False then.
    @discardableResult
    mutating func raise(_ event: Stream.Event, unlessMovedSince transfers: UInt64) -> Bool {
        if transfers == self.transfers { raise(event) }
        return transfers == self.transfers
    }

    /// Takes back an event that was raised too soon.
    mutating func withdraw(_ event: Stream.Event) { raised.subtract(event) }

    /// Forgets what was told: a stream that is scheduled anew tells its new loop again.
    mutating func forgetTold() { unanswered = [] }

    /// The next of `events` to tell, in the order of their bits.
    mutating func nextToTell(of events: Stream.Event) -> Stream.Event? {
        let wanted = raised.intersection(events)
        guard !wanted.isEmpty else { return nil }
        let next = Stream.Event(rawValue: 1 << UInt(wanted.rawValue.trailingZeroBitCount))
        raised.subtract(next)
        unanswered.formUnion(next.intersection([.hasBytesAvailable, .hasSpaceAvailable]))
        return next
    }

    /// Raises `event` again, which was taken to be delivered and found no delegate, unless a read, a write, a fault
    /// or the closing of the stream has made it void meanwhile.
    mutating func restore(_ event: Stream.Event) {
        guard !isReleased, status != .error || event == .errorOccurred else { return }
        if event == .hasBytesAvailable || event == .hasSpaceAvailable {
            guard isOpen, unanswered.contains(event) else { return }
            unanswered.subtract(event)
        }
        raised.insert(event)
    }
}
