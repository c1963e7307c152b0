/// Work that this library and its peers do, measured by one or more experiments.
struct Workload {
    let name: String
    /// A description in Markdown for the page.
    let work: String
    var experiments: [Experiment] = []
}

/// A measurement of a workload at several sizes.
struct Experiment {
    let name: String
    /// The unit of the sizes.
    let unit: String
    let columns: [Column]
    let peers: [String]
    let sizes: [Size]
    /// Why a peer is omitted, or runs only some sizes.
    var absences: [String: String] = [:]
    /// The largest sizes of peers that take too long at larger ones.
    var ends: [String: Int] = [:]
    /// The command of a peer for a size, which prints the columns.
    let command: @Sendable (_ peer: String, _ size: Int) -> [String]

    /// The peers that run `size`. Sizes that only show the growth are run by few peers.
    func peers(at size: Size, in plan: Plan) -> [String] {
        peers.filter { peer in
            guard plan.wants(peer), size.value <= ends[peer] ?? .max else { return false }
            return size.isForAll || plan.isQuick || Plan.growing.contains(peer)
        }
    }
}

/// A size of an experiment.
struct Size {
    let value: Int
    /// Whether all peers run it, or only those in ``Plan/growing``.
    let isForAll: Bool
    /// Whether it is part of a quick run.
    let isQuick: Bool
    /// Whether it is part of a full run.
    let isFull: Bool

    static func all(_ value: Int) -> Size { Size(value: value, isForAll: true, isQuick: false, isFull: true) }
    static func both(_ value: Int) -> Size { Size(value: value, isForAll: true, isQuick: true, isFull: true) }
    static func few(_ value: Int) -> Size {
        Size(value: value, isForAll: false, isQuick: false, isFull: true)
    }
    static func quick(_ value: Int) -> Size {
        Size(value: value, isForAll: true, isQuick: true, isFull: false)
    }
}

/// A number that programs print. A `*` at the end of the literal means that it is compared with the baseline's.
struct Column: ExpressibleByStringLiteral {
    let name: String
    let isCompared: Bool

    init(stringLiteral text: String) {
        isCompared = text.hasSuffix("*")
        name = isCompared ? String(text.dropLast()) : text
    }

    /// Whether it is a rate, where more is better. The other numbers are costs.
    var isRate: Bool { name.hasSuffix("/s") }

    /// Whether it is the cost of one operation, connection or byte, which must not grow.
    var isCost: Bool { isCompared && name.contains("/") && !isRate }
}

/// Which peers and sizes to run, and for how many rounds.
struct Plan {
    /// The peers whose growth is shown: the baselines, libevent and this library.
    static let growing: Set = ["raw", "libevent", "openssl", "reactor", "readLine"]

    var isQuick = false
    var rounds = 0
    var only: Set<String> = []

    func wants(_ peer: String) -> Bool {
        (only.isEmpty || only.contains(peer)) && (!isQuick || peer != "control")
    }

    func sizes(of experiment: Experiment) -> [Size] {
        experiment.sizes.filter { isQuick ? $0.isQuick : $0.isFull }
    }
}
