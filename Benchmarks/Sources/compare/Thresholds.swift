import Foundation
import Measuring

/// The most that operations of this library may cost: a file that a reader can follow.
struct Thresholds {
    private let lines: [(operation: Operation, limits: [(kind: Counter.Kind, most: Double)])]

    /// Each line is an operation, the allocations and the instructions; `#` begins a comment.
    init(file: URL) throws {
        let text = try String(contentsOf: file, encoding: .utf8)
        let rows = text.split(separator: "\n").filter { !$0.hasPrefix("#") }
        lines = try rows.map { row in
            let words = row.split(separator: " ")
            guard words.count == 3, let operation = Operation.all.first(where: { $0.name == words[0] }),
                let allocations = Double(words[1]), let instructions = Double(words[2])
            else {
                throw Failure(
                    description: "\(file.lastPathComponent) has a line that is not understood: \(row)")
            }
            return (operation, [(.allocations, allocations), (.instructions, instructions)])
        }
    }

    /// What can be compared here: every architecture has instructions of its own.
    private static var kinds: [Counter.Kind] {
        #if arch(x86_64)
            [.allocations, .instructions].filter(\.isAvailable)
        #else
            [.allocations]
        #endif
    }

    /// Counts them all, prints a table, and returns whether each keeps to its limits.
    func areKept(by counter: Counter) throws -> Bool {
        var (table, isKept) = (Table(["operation", "", "counted", "at most", ""]), true)
        let kinds = Self.kinds
        if !kinds.contains(.instructions) {
            say("Instructions are not checked: that needs valgrind, on x86_64.")
        }
        for (operation, limits) in lines {
            for (kind, most) in limits where kinds.contains(kind) {
                let count = try counter.cost(of: operation, "reactor", kind)
                isKept = isKept && count <= most
                let row = [operation.name, kind.rawValue, fixed(count, 2), fixed(most, 2)]
                table.append(
                    row + [count > most ? "TOO MANY" : count < most * 0.7 && most > 1 ? "lower it" : ""])
            }
        }
        print(table.text)
        return isKept
    }
}
