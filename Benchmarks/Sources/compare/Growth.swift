import Foundation
import Measuring

/// The growth of a cost with the size of the work: the exponent of the best-fitting power.
struct Growth {
    let exponent: Double
    /// The exponent that logarithmic growth has over the same sizes, plus noise.
    let bound: Double

    static let worse = "**worse than log n**"

    /// Over three decades, a random factor of two looks like a power with this exponent.
    private static let noise = 0.1

    /// Nil for fewer than two sizes.
    init?(of costs: [(size: Int, cost: Double)]) {
        let points = costs.filter { $0.cost > 0 && $0.size > 0 }.map { (log(Double($0.size)), log($0.cost)) }
        guard points.count > 1 else { return nil }
        exponent = Self.slope(points)
        bound = Self.slope(costs.map { (log(Double($0.size)), log(log(Double($0.size) + 2))) }) + Self.noise
    }

    /// The slope of the least-squares line.
    private static func slope(_ points: [(x: Double, y: Double)]) -> Double {
        let count = Double(points.count)
        let (x, y) = (points.map(\.x).reduce(0, +) / count, points.map(\.y).reduce(0, +) / count)
        let square = points.map { ($0.x - x) * ($0.x - x) }.reduce(0, +)
        return points.map { ($0.x - x) * ($0.y - y) }.reduce(0, +) / square
    }

    var text: String { "n^\(fixed(exponent, 2))" }

    /// The baseline's growth is caused by the machine's caches and its kernel.
    func verdict(baseline: Growth?) -> String {
        if exponent <= 0.05 { return "constant" }
        if exponent <= bound { return "≤ log n" }
        if let baseline, exponent <= baseline.exponent + Self.noise { return "as the baseline" }
        return Self.worse
    }
}

extension Growth {
    /// The costs at the sizes of an experiment; nil if there are fewer than four.
    static func table(_ experiment: Experiment, _ results: [(size: Size, results: Results)]) -> Table? {
        guard results.count > 3 else { return nil }
        var table = Table([experiment.unit] + results.map { grouped($0.size.value) } + ["grows as", ""])
        for (index, column) in experiment.columns.enumerated() where column.isCost {
            var baseline: Growth?
            for peer in experiment.peers where Plan.growing.contains(peer) {
                let costs = results.compactMap { size, results in
                    median(results.numbers(index, of: peer)).map { (size.value, $0) }
                }
                guard costs.count == results.count, let growth = Growth(of: costs) else { continue }
                let cells = results.map { short(median($0.results.numbers(index, of: peer))) }
                table.append(
                    ["\(column.name), `\(peer)`"] + cells + [growth.text, growth.verdict(baseline: baseline)])
                if baseline == nil { baseline = growth }
            }
        }
        return table.isEmpty ? nil : table
    }
}
