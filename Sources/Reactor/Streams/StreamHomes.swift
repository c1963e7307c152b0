/// One run loop that a stream is scheduled on.
struct StreamHome {
    let identity: LoopIdentity
    let loop: RunLoop
    /// What the loop serves for the stream.
    let station: LoopBound<DescriptorSource>
    var membership = Membership()
    /// What the loop has the kernel watch for.
    var interest: Readiness = []
    /// Whether the kernel is not asked until the delegate answers: it told again of what was told already.
    var isDisarmed = false
    /// Whether the loop has been asked to follow, and has not done so yet.
    var isSummoned = false

    init(_ loop: RunLoop, station: DescriptorSource) {
        identity = loop.identity
        self.loop = loop
        self.station = LoopBound(station, home: loop.identity)
    }
}

/// The run loops that a stream is scheduled on: nearly always one, which needs no memory of its own.
///
/// Found by their identities, and looked at in place: every event does, and would count references otherwise.
struct StreamHomes {
    private(set) var first: StreamHome?
    private var others: [StreamHome] = []

    var isEmpty: Bool { first == nil }

    var hasOthers: Bool { !others.isEmpty }

    var all: [StreamHome] { (first.map { [$0] } ?? []) + others }

    /// Asks something of the home on a loop, if there is one.
    @inline(__always)
    func look<Answer>(_ loop: LoopIdentity, _ question: (borrowing StreamHome) -> Answer) -> Answer? {
        if let first, first.identity == loop { return question(first) }
        return others.isEmpty ? nil : others.first { $0.identity == loop }.map { question($0) }
    }

    /// Changes the home on a loop, if there is one.
    @discardableResult
    @inline(__always)
    mutating func update<Answer>(_ loop: LoopIdentity, _ change: (inout StreamHome) -> Answer) -> Answer? {
        if first?.identity == loop { return change(&first!) }
        guard let index = others.firstIndex(where: { $0.identity == loop }) else { return nil }
        return change(&others[index])
    }

    mutating func insert(_ home: StreamHome) {
        if first == nil { first = home } else { others.append(home) }
    }

    mutating func remove(_ loop: LoopIdentity) -> StreamHome? {
        if first?.identity == loop {
            defer { first = others.popLast() }
            return first
        }
        return others.firstIndex { $0.identity == loop }.map { others.remove(at: $0) }
    }
}
