import Measuring

/// A table in Markdown, aligned so that it is readable in a terminal.
struct Table {
    private var rows: [[String]]

    init(_ headings: [String]) { rows = [headings] }

    var isEmpty: Bool { rows.count == 1 }

    mutating func append(_ row: [String]) { rows.append(row) }

    var text: String {
        let widths = rows[0].indices.map { column in max(3, rows.map { $0[column].count }.max()!) }
        var lines = rows.map { line($0, widths) }
        let rule = widths.enumerated().map {
            String(repeating: "-", count: $1 - ($0 > 0 ? 1 : 0)) + ($0 > 0 ? ":" : "")
        }
        lines.insert("| \(rule.joined(separator: " | ")) |", at: 1)
        return lines.joined(separator: "\n") + "\n"
    }

    /// Aligns the first column to the left and the numbers to the right.
    private func line(_ row: [String], _ widths: [Int]) -> String {
        let cells = row.enumerated().map { index, cell in
            let blank = String(repeating: " ", count: widths[index] - cell.count)
            return index == 0 ? cell + blank : blank + cell
        }
        return "| \(cells.joined(separator: " | ")) |"
    }
}

extension Table {
    /// The peers' medians, the spread of their runs and the ratios to the baseline, followed by the absent peers.
    init(_ results: Results, columns: [Column], absent: [String] = []) {
        let isSpread = results.rounds > 1
        let headings = columns.map { column in
            guard column.isCompared, results.peers.count > 1 else { return [column.name] }
            return [column.name] + (isSpread ? ["±"] : []) + ["× \(results.baseline)"]
        }
        self.init([""] + headings.joined())
        for peer in results.peers {
            append(["`\(peer)`"] + columns.indices.flatMap { Self.cells($0, columns[$0], peer, results) })
        }
        for peer in absent { append(["`\(peer)`"] + headings.joined().map { _ in "–" }) }
    }

    private static func cells(_ index: Int, _ column: Column, _ peer: String, _ results: Results) -> [String]
    {
        let numbers = results.numbers(index, of: peer)
        guard column.isCompared, results.peers.count > 1 else { return [short(median(numbers))] }
        let spread = results.rounds > 1 ? [spread(numbers)] : []
        return [short(median(numbers))] + spread + [ratio(results.ratios(index, of: peer))]
    }

    /// Half the range, as a percentage of the median.
    private static func spread(_ numbers: [Double]) -> String {
        guard numbers.count > 1, let middle = median(numbers), middle > 0 else { return "" }
        return "\(fixed((numbers.max()! - numbers.min()!) / 2 / middle * 100, 0)) %"
    }

    private static func ratio(_ ratios: [Double]) -> String {
        guard let middle = median(ratios) else { return "" }
        guard ratios.count > 1 else { return fixed(middle, 2) }
        return "\(fixed(middle, 2)) [\(fixed(ratios.min()!, 2))–\(fixed(ratios.max()!, 2))]"
    }
}

/// A number with at least three significant digits.
func short(_ number: Double?) -> String {
    guard let number else { return "–" }
    switch number.magnitude {
    case 0: return "0"
    case ..<1: return fixed(number, 3)
    case ..<10: return fixed(number, 2)
    case ..<100: return fixed(number, 1)
    default: return fixed(number, 0)
    }
}

/// A whole number with thousands separators.
func grouped(_ number: Int) -> String {
    var digits = Array(String(number))
    for place in stride(from: digits.count - 3, to: 0, by: -3) { digits.insert(",", at: place) }
    return String(digits)
}
