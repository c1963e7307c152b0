/// A stream's place on one run loop: what the loop serves for it, with or without a descriptor.
final class StreamStation: EventSource {
    /// Kept alive until the station ends.
    private var engine: StreamEngine?

    init(of engine: StreamEngine) {
        self.engine = engine
        super.init(-1, for: [])
    }

    override func serve(_ readiness: Readiness) { engine?.serve(self, readiness) }

    override func ended() { engine = nil }

    override func loopEnded(_ loop: RunLoop) { engine?.loopEnded(loop) }

    /// The engine asks the kernel itself.
    override var confirmsLateReadiness: Bool { false }
}

/// One run loop that a stream is scheduled on.
struct StreamHome {
    let loop: RunLoop
    let station: LoopBound<StreamStation>
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

    init(_ loop: RunLoop, station: StreamStation) {
        self.loop = loop
        self.station = LoopBound(station, home: loop.identity)
    }

    var identity: LoopIdentity { station.home }
}

/// The run loops that a stream is scheduled on.
typealias StreamHomes = ShortList<StreamHome>

extension StreamHomes {
    /// How things stand on a loop; nil if it is none of these.
    subscript(loop: LoopIdentity) -> StreamHome.Standing? {
        if first?.identity == loop { return first?.standing }
        return hasOthers ? first { $0.identity == loop }?.standing : nil
    }

    /// Changes how things stand on a loop, if it is one of these.
    @discardableResult
    @inline(__always)
    mutating func update<Answer>(
        _ loop: LoopIdentity, _ change: (inout StreamHome.Standing) -> Answer
    ) -> Answer? {
        update(where: { $0.identity == loop }, { change(&$0.standing) })
    }

    /// What the loop serves for the stream.
    func station(on loop: LoopIdentity) -> LoopBound<StreamStation>? {
        if first?.identity == loop { return first?.station }
        return first { $0.identity == loop }?.station
    }

    /// The loops that things stand on as `isWanted` says.
    func loops(_ isWanted: (StreamHome.Standing) -> Bool) -> ShortList<RunLoop> {
        var loops = ShortList<RunLoop>()
        for home in self where isWanted(home.standing) { loops.append(home.loop) }
        return loops
    }

    mutating func remove(_ loop: LoopIdentity) -> StreamHome? { takeFirst { $0.identity == loop } }
}
