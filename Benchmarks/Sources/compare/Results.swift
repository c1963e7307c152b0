/// The numbers that the peers' runs of one experiment at one size have printed, by round.
struct Results {
    private(set) var peers: [String] = []
    private var runs: [String: [[Double]]] = [:]

    /// - Parameter numbers: Empty if the run failed.
    mutating func append(_ numbers: [Double], of peer: String) {
        if runs[peer] == nil { peers.append(peer) }
        runs[peer, default: []].append(numbers)
    }

    var rounds: Int { runs.values.map(\.count).max() ?? 0 }

    /// The peer that the others are compared with: the first.
    var baseline: String { peers.first ?? "" }

    /// The numbers in a column. A peer may print fewer columns, and NaN stands for a number that cannot be counted.
    func numbers(_ column: Int, of peer: String) -> [Double] { entries(column, of: peer).compactMap(\.self) }

    private func entries(_ column: Int, of peer: String) -> [Double?] {
        (runs[peer] ?? []).map { $0.indices.contains(column) && !$0[column].isNaN ? $0[column] : nil }
    }

    /// The ratios to the baseline's runs of the same rounds, which cancel out the noise of a round.
    func ratios(_ column: Int, of peer: String) -> [Double] {
        zip(entries(column, of: peer), entries(column, of: baseline)).compactMap { number, baseline in
            guard let number, let baseline, baseline > 0.01 else { return nil }
            return number / baseline
        }
    }
}

/// The median of `numbers`; nil if there are none.
func median(_ numbers: [Double]) -> Double? {
    guard !numbers.isEmpty else { return nil }
    let sorted = numbers.sorted()
    return (sorted[(sorted.count - 1) / 2] + sorted[sorted.count / 2]) / 2
}
