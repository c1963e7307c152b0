import Foundation
import Measuring

/// How a cost grows with the size of the work: as the power of the size that fits best.
struct Growth {
    let exponent: Double
    /// What growth with the logarithm of the size looks like as a power over the same sizes, the noise included.
    let bound: Double

    static let worse = "**worse than log n**"

    /// Costs that double from run to run can look like this much of a power over three decades.
    private static let noise = 0.1

    /// Needs two sizes.
    init?(of costs: [(size: Int, cost: Double)]) {
        let points = costs.filter { $0.cost > 0 && $0.size > 0 }.map { (log(Double($0.size)), log($0.cost)) }
        guard points.count > 1 else { return nil }
        exponent = Self.slope(points)
        bound = Self.slope(costs.map { (log(Double($0.size)), log(log(Double($0.size) + 2))) }) + Self.noise
    }

    /// Least squares.
    private static func slope(_ points: [(x: Double, y: Double)]) -> Double {
        let count = Double(points.count)
        let (x, y) = (points.map(\.x).reduce(0, +) / count, points.map(\.y).reduce(0, +) / count)
        let square = points.map { ($0.x - x) * ($0.x - x) }.reduce(0, +)
        return points.map { ($0.x - x) * ($0.y - y) }.reduce(0, +) / square
    }

    var text: String { "n^\(fixed(exponent, 2))" }

    /// Compared with the limit, whose growth is the machine's: of its caches and of its kernel.
    func verdict(limit: Growth?) -> String {
        if exponent <= 0.05 { return "constant" }
        if exponent <= bound { return "≤ log n" }
        if let limit, exponent <= limit.exponent + Self.noise { return "as the limit" }
        return Self.worse
    }
}

extension Growth {
    /// The costs of an experiment's sizes, side by side; nil where there are not enough sizes.
    static func table(_ experiment: Experiment, _ results: [(size: Size, results: Results)]) -> Table? {
        guard results.count > 3 else { return nil }
        var table = Table([experiment.unit] + results.map { grouped($0.size.value) } + ["grows as", ""])
        for (index, column) in experiment.columns.enumerated() where column.isCost {
            var limit: Growth?
            for peer in experiment.peers where Plan.growing.contains(peer) {
                let costs = results.compactMap { size, results in
                    median(results.numbers(index, of: peer)).map { (size.value, $0) }
                }
                guard costs.count == results.count, let growth = Growth(of: costs) else { continue }
                let cells = results.map { short(median($0.results.numbers(index, of: peer))) }
                table.append(
                    ["\(column.name), `\(peer)`"] + cells + [growth.text, growth.verdict(limit: limit)])
                if limit == nil { limit = growth }
            }
        }
        return table.isEmpty ? nil : table
    }
}
