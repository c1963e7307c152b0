import Foundation
import Measuring

/// The upper limits of the costs of this library's operations.
struct Thresholds {
    private let lines: [(operation: Operation, limits: [(kind: Counter.Kind, most: Double)])]

    /// Reads a file. Each line has an operation's name, its allocations, its instructions and the bytes that it adds to the
    /// program's peak, or `-` where there is no limit; `#` begins a comment.
    init(file: URL) throws {
        let text = try String(contentsOf: file, encoding: .utf8)
        let rows = text.split(separator: "\n").filter { !$0.hasPrefix("#") }
        lines = try rows.map { row in
            let words = row.split(separator: " ")
            guard words.count == 4, let operation = Operation.all.first(where: { $0.name == words[0] }),
                let allocations = Self.limit(words[1]), let instructions = Self.limit(words[2]),
                let memory = Self.limit(words[3])
            else {
                throw Failure(
                    description: "\(file.lastPathComponent) has an invalid line: \(row)")
            }
            return (
                operation, [(.allocations, allocations), (.instructions, instructions), (.memory, memory)]
            )
        }
    }

    private static func limit(_ word: Substring) -> Double? { word == "-" ? .infinity : Double(word) }

    /// How often a cost is counted until it is within its limit.
    private static let mostCounts = 3

    /// The kinds to check. The limits of instructions are for x86_64.
    private static var kinds: [Counter.Kind] {
        #if arch(x86_64)
        [.allocations, .instructions, .memory].filter(\.isAvailable)
        #else
        [.allocations, .memory]
        #endif
    }

    /// Counts the costs and prints a table. Returns whether all costs are within their limits.
    func check(with counter: Counter) throws -> Bool {
        var (table, isWithinLimits) = (Table(["operation", "", "counted", "at most", ""]), true)
        let kinds = Self.kinds
        if !kinds.contains(.instructions) {
            printStatus("Instructions are not checked: that needs valgrind on x86_64.")
        }
        for (operation, limits) in lines {
            for (kind, most) in limits where kinds.contains(kind) && most.isFinite {
                var (count, repetitions) = (Double.infinity, 0)
                // The speed of the servers adds to some counts.
                while count > most, repetitions < Self.mostCounts {
                    count = min(count, try counter.cost(of: operation, "reactor", kind))
                    repetitions += 1
                }
                isWithinLimits = isWithinLimits && count <= most
                let row = [operation.name, kind.rawValue, fixed(count, 2), fixed(most, 2)]
                table.append(
                    row + [count > most ? "TOO MANY" : count < most * 0.7 && most > 1 ? "lower it" : ""])
            }
        }
        print(table.text)
        return isWithinLimits
    }
}
