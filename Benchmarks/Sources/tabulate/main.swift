// tabulate COLUMN...  reads `CONFIGURATION PEER NUMBER...`, one line for each run, the peers interleaved, and
//                     prints the medians of each column, and for each column that ends in `*` the ratio to
//                     the first peer: the median, lowest and highest of those of runs of the same round.

import Measuring

struct Table {
    var peers: [String] = []
    var rows: [String: [[Double]]] = [:]

    mutating func append(_ row: [Double], of peer: String) {
        if rows[peer] == nil { peers.append(peer) }
        rows[peer, default: []].append(row)
    }

    func numbers(_ column: Int, of peer: String) -> [Double] {
        (rows[peer] ?? []).compactMap { $0.indices.contains(column) ? $0[column] : nil }
    }

    func ratios(_ column: Int, of peer: String) -> [Double] {
        zip(numbers(column, of: peer), numbers(column, of: peers[0])).filter { $1 > 0 }.map { $0 / $1 }
    }
}

func median(_ numbers: [Double]) -> Double {
    let sorted = numbers.sorted()
    return (sorted[(sorted.count - 1) / 2] + sorted[sorted.count / 2]) / 2
}

func short(_ number: Double) -> String {
    fixed(number, number.magnitude >= 100 ? 0 : number.magnitude >= 10 ? 1 : 2)
}

func padded(_ text: String, _ width: Int) -> String {
    String(repeating: " ", count: max(1, width - text.count)) + text
}

func line(_ table: Table, _ peer: String, _ columns: [String]) -> String {
    var line = "  \(peer)" + String(repeating: " ", count: max(1, 12 - peer.count))
    for (index, column) in columns.enumerated() {
        let numbers = table.numbers(index, of: peer)
        line += padded(numbers.isEmpty ? "-" : short(median(numbers)), 14)
        guard column.hasSuffix("*") else { continue }
        let ratios = table.ratios(index, of: peer)
        let range = ratios.isEmpty ? "-" : "[\(fixed(ratios.min()!, 2))–\(fixed(ratios.max()!, 2))]"
        line += padded(ratios.isEmpty ? "-" : "\(fixed(median(ratios), 2)) \(range)", 20)
    }
    return line
}

let columns = Array(CommandLine.arguments.dropFirst())
var order: [String] = []
var tables: [String: Table] = [:]
while let words = readLine()?.split(separator: " ").map(String.init) {
    guard words.count > 2 else { continue }
    if tables[words[0]] == nil { order.append(words[0]) }
    tables[words[0], default: Table()].append(words.dropFirst(2).compactMap(Double.init), of: words[1])
}
for name in order {
    guard let table = tables[name] else { continue }
    let heads = columns.map { column in
        column.hasSuffix("*") ? padded(String(column.dropLast()), 14) + padded("x", 20) : padded(column, 14)
    }
    print("\n\(name)\n" + String(repeating: " ", count: 14) + heads.joined())
    for peer in table.peers { print(line(table, peer, columns)) }
}
