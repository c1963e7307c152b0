import Foundation
import Measuring

/// A bar chart in SVG: the ratio of each peer's cost to the baseline's, on a logarithmic scale.
struct Chart {
    struct Bar {
        let peer: String
        let ratio: Double
        let value: String
    }

    struct Group {
        let title: String
        let bars: [Bar]
    }

    let groups: [Group]

    private static let (label, width, row, head, value) = (90.0, 520.0, 18.0, 34.0, 190.0)

    /// Follows the reader's preference for a light or a dark background.
    private static let style = """
        <style>
        svg { background: #ffffff; font: 12px system-ui, sans-serif }
        text { fill: #24292f } .title { font-weight: 600 } .value { fill: #57606a }
        .raw { fill: #8c959f } .peer { fill: #6ea8d8 } .reactor { fill: #d9480f }
        .limit { stroke: #57606a; stroke-dasharray: 3 3 }
        @media (prefers-color-scheme: dark) {
        svg { background: #0d1117 }
        text { fill: #e6edf3 } .value { fill: #9198a1 }
        .raw { fill: #6e7681 } .peer { fill: #3b6fa0 } .reactor { fill: #f76707 }
        .limit { stroke: #9198a1 }
        }
        </style>
        """

    private var range: ClosedRange<Double> {
        let ratios = groups.flatMap { $0.bars.map(\.ratio) }
        return min(0.5, ratios.min() ?? 1)...max(4, ratios.max() ?? 1)
    }

    private func x(_ ratio: Double) -> Double {
        let (low, high) = (log(range.lowerBound), log(range.upperBound))
        return Self.label + (log(ratio) - low) / (high - low) * Self.width
    }

    var text: String {
        var (lines, y) = ([String](), 0.0)
        for group in groups {
            lines.append("<text class='title' x='8' y='\(place(y + 22))'>\(escaped(group.title))</text>")
            y += Self.head
            let top = y
            for bar in group.bars {
                lines.append(contentsOf: shapes(of: bar, at: y))
                y += Self.row
            }
            lines.append(baseline(from: top, to: y))
        }
        let (width, height) = (place(Self.label + Self.width + Self.value), place(y + 12))
        let size = "viewBox='0 0 \(width) \(height)' width='\(width)' height='\(height)'"
        let opening = "<svg xmlns='http://www.w3.org/2000/svg' \(size)>"
        return ([opening, Self.style] + lines + ["</svg>"]).joined(separator: "\n") + "\n"
    }

    private func baseline(from top: Double, to bottom: Double) -> String {
        let x = place(x(1))
        return "<line class='limit' x1='\(x)' x2='\(x)' y1='\(place(top))' y2='\(place(bottom))'/>"
    }

    private func shapes(of bar: Bar, at y: Double) -> [String] {
        let colour = bar.peer == "reactor" ? "reactor" : bar.peer == "raw" ? "raw" : "peer"
        let (start, end, base) = (x(range.lowerBound), x(bar.ratio), place(y + 13))
        let (left, width) = (place(start), place(max(1, end - start)))
        let value = "\(fixed(bar.ratio, 2))×, \(escaped(bar.value))"
        return [
            "<text x='\(place(Self.label - 8))' y='\(base)' text-anchor='end'>\(escaped(bar.peer))</text>",
            "<rect class='\(colour)' x='\(left)' y='\(place(y + 3))' width='\(width)' height='12' rx='2'/>",
            "<text class='value' x='\(place(end + 6))' y='\(base)'>\(value)</text>",
        ]
    }

    private func place(_ number: Double) -> String { fixed(number) }

    private func escaped(_ text: String) -> String {
        text.replacing("&", with: "&amp;").replacing("<", with: "&lt;")
    }
}

extension Chart.Group {
    /// Charts the first compared column; nil if there is nothing to compare.
    init?(_ experiment: Experiment, _ size: Size, _ results: Results) {
        guard let index = experiment.columns.firstIndex(where: \.isCompared) else { return nil }
        let column = experiment.columns[index]
        bars = results.peers.compactMap { peer in
            guard peer != "control", let ratio = median(results.ratios(index, of: peer)), ratio > 0 else {
                return nil
            }
            let value = "\(short(median(results.numbers(index, of: peer)))) \(column.name)"
            return Chart.Bar(peer: peer, ratio: ratio, value: value)
        }
        guard bars.count > 1 else { return nil }
        let better = column.isRate ? "longer" : "shorter"
        title =
            "\(experiment.name), \(grouped(size.value)) \(experiment.unit): times \(results.baseline) (\(better) is better)"
    }
}
