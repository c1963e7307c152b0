/// One run loop that a stream is scheduled on.
struct StreamHome {
    let loop: RunLoop
    /// What the loop serves for the stream.
    let station: LoopBound<DescriptorSource>
    var standing = Standing()

    /// How things stand there: a plain value, as every event looks at it.
    struct Standing {
        var membership = Membership()
        /// What the loop has the kernel watch for.
        var interest: Readiness = []
        /// Whether the kernel is not asked until the delegate answers: it told again of what was told already.
        var isDisarmed = false
        /// Whether the station is in the modes that it should be in.
        var isSettled = false
        /// Whether the loop has been asked to follow, and has not done so yet.
        var isSummoned = false
    }

    init(_ loop: RunLoop, station: DescriptorSource) {
        self.loop = loop
        self.station = LoopBound(station, home: loop.identity)
    }

    var identity: LoopIdentity { station.home }
}

/// The run loops that a stream is scheduled on: nearly always one, which needs no memory of its own.
struct StreamHomes: ~Copyable {
    private(set) var first: StreamHome?
    private var others: [StreamHome] = []

    var isEmpty: Bool { first == nil }

    var hasOthers: Bool { !others.isEmpty }

    var all: [StreamHome] { (first.map { [$0] } ?? []) + others }

    /// How things stand on a loop; nil if it is none of these.
    subscript(loop: LoopIdentity) -> StreamHome.Standing? {
        if first?.identity == loop { return first?.standing }
        return others.isEmpty ? nil : others.first { $0.identity == loop }?.standing
    }

    /// Changes how things stand on a loop, if it is one of these.
    @discardableResult
    @inline(__always)
    mutating func update<Answer>(
        _ loop: LoopIdentity, _ change: (inout StreamHome.Standing) -> Answer
    ) -> Answer? {
        if first?.identity == loop { return change(&first!.standing) }
        guard let index = others.firstIndex(where: { $0.identity == loop }) else { return nil }
        return change(&others[index].standing)
    }

    /// What the loop serves for the stream.
    func station(on loop: LoopIdentity) -> LoopBound<DescriptorSource>? {
        if first?.identity == loop { return first?.station }
        return others.first { $0.identity == loop }?.station
    }

    /// The loops that things stand on as `isWanted` says.
    func loops(_ isWanted: (StreamHome.Standing) -> Bool) -> (first: RunLoop?, others: [RunLoop]) {
        let first = first.map { isWanted($0.standing) } ?? false ? self.first?.loop : nil
        return (first, others.isEmpty ? [] : others.filter { isWanted($0.standing) }.map(\.loop))
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
