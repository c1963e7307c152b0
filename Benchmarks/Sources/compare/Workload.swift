/// Work that this library and its peers do, measured in one or more ways.
struct Workload {
    let name: String
    /// What is done, for the page: a sentence or two of Markdown.
    let work: String
    var experiments: [Experiment] = []
}

/// One way to measure it, at several sizes.
struct Experiment {
    let name: String
    /// What a size is the number of.
    let unit: String
    let columns: [Column]
    let peers: [String]
    let sizes: [Size]
    /// Why a peer is left out, or only takes part in some sizes.
    var absences: [String: String] = [:]
    /// The largest sizes of the peers that would take too long at larger ones.
    var ends: [String: Int] = [:]
    /// The command that a peer runs for a size; it prints the columns.
    let command: @Sendable (_ peer: String, _ size: Int) -> [String]

    /// Who takes part at `size`: at those that are there to show growth, few.
    func peers(at size: Size, in plan: Plan) -> [String] {
        peers.filter { peer in
            guard plan.wants(peer), size.value <= ends[peer] ?? .max else { return false }
            return size.isForAll || plan.isQuick || Plan.growing.contains(peer)
        }
    }
}

/// How much of it there is.
struct Size {
    let value: Int
    /// Whether all peers take part; else those do that show how the cost grows.
    let isForAll: Bool
    /// Whether it is part of a quick run.
    let isQuick: Bool
    /// Whether it is part of a full one.
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

/// A number that programs print. Written with a `*` at the end, it is compared with the limit's.
struct Column: ExpressibleByStringLiteral {
    let name: String
    let isCompared: Bool

    init(stringLiteral text: String) {
        isCompared = text.hasSuffix("*")
        name = isCompared ? String(text.dropLast()) : text
    }

    /// Whether more is better: a rate, where the others are costs.
    var isRate: Bool { name.hasSuffix("/s") }

    /// Whether it is what one operation, connection or byte costs: that may not grow.
    var isCost: Bool { isCompared && name.contains("/") && !isRate }
}

/// What is to be run, and how often.
struct Plan {
    /// Who shows how costs grow: the limit, what this library stands on, and this library.
    static let growing: Set = ["raw", "libevent", "reactor", "readLine"]

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
