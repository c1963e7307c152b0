/// What the peers' runs of one experiment at one size have printed, round by round.
struct Results {
    private(set) var peers: [String] = []
    private var runs: [String: [[Double]]] = [:]

    /// - Parameter numbers: None, if the run failed.
    mutating func append(_ numbers: [Double], of peer: String) {
        if runs[peer] == nil { peers.append(peer) }
        runs[peer, default: []].append(numbers)
    }

    var rounds: Int { runs.values.map(\.count).max() ?? 0 }

    /// The peer that the others are compared with: the first.
    var limit: String { peers.first ?? "" }

    /// Those that there are: a peer may print fewer columns, and what cannot be counted is not a number.
    func numbers(_ column: Int, of peer: String) -> [Double] { entries(column, of: peer).compactMap(\.self) }

    private func entries(_ column: Int, of peer: String) -> [Double?] {
        (runs[peer] ?? []).map { $0.indices.contains(column) && !$0[column].isNaN ? $0[column] : nil }
    }

    /// The ratios to the limit's runs of the same rounds, so that what disturbs a round cancels out.
    func ratios(_ column: Int, of peer: String) -> [Double] {
        zip(entries(column, of: peer), entries(column, of: limit)).compactMap { number, limit in
            guard let number, let limit, limit > 0.01 else { return nil }
            return number / limit
        }
    }
}

/// The middle of `numbers`, or nil if there are none.
func median(_ numbers: [Double]) -> Double? {
    guard !numbers.isEmpty else { return nil }
    let sorted = numbers.sorted()
    return (sorted[(sorted.count - 1) / 2] + sorted[sorted.count / 2]) / 2
}
