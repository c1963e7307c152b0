import Foundation

/// Counts the instructions, system calls and allocations of programs with external tools.
struct Counter {
    enum Kind: String {
        case instructions
        case systemCalls = "system calls"
        case allocations
        /// The program's peak of resident memory, which it prints in KiB.
        case memory = "bytes"
    }

    let locations: Locations
    /// For the tools' output and for copies of the programs.
    let folder: URL

    private var log: String { folder.appending(path: "log").path }

    /// The cost of one operation.
    func cost(of operation: Operation, _ peer: String, _ kind: Kind) throws -> Double {
        let short = try count(operation.command(peer, operation.counts.short), kind)
        let long = try count(operation.command(peer, operation.counts.long), kind)
        return max(0, long - short) / Double(operation.counts.long - operation.counts.short)
            / operation.factor
    }

    private func count(_ command: [String], _ kind: Kind) throws -> Double {
        var command = try command.map { kind == .instructions && $0.hasPrefix("@") ? try stripped($0) : $0 }
        if !command.contains("TOOL") { command.insert("TOOL", at: 0) }
        let position = command.firstIndex(of: "TOOL")!
        command.replaceSubrange(position...position, with: tool(kind))
        try Data(count: kind == .allocations ? 8 : 0).write(to: URL(filePath: log))
        let resolved = try locations.resolved(command)
        // Random hashing would make the counts vary.
        let text = try output(
            of: ["timeout", "300"] + resolved, environment: ["SWIFT_DETERMINISTIC_HASHING": "1"])
        return try reading(kind, text)
    }

    private func tool(_ kind: Kind) -> [String] {
        switch kind {
        case .instructions:
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-file=\(log)"]
        case .systemCalls:
            ["strace", "-f", "-c", "-U", "calls,name", "-o", log]
        case .allocations:
            [
                "env", "COUNT_ALLOCATIONS_IN=\(log)",
                "LD_PRELOAD=\(locations.path(of: "count-allocations.so"))",
            ]
        case .memory: []
        }
    }

    private func reading(_ kind: Kind, _ output: String) throws -> Double {
        if kind == .memory {
            return (Double(output.split(whereSeparator: \.isWhitespace).first ?? "") ?? .nan) * 1024
        }
        let bytes = try Data(contentsOf: URL(filePath: log))
        if kind == .allocations { return Double(bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }) }
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
        let mark = kind == .instructions ? "Collected" : "total"
        let words = lines.last { $0.contains(mark) }?.split(separator: " ") ?? []
        guard let count = words.compactMap({ Double($0) }).first else {
            throw Failure(description: "\(log) has no count of \(kind.rawValue).")
        }
        return count
    }

    /// The path of a copy without debugging information, because valgrind fails to read Swift's.
    private func stripped(_ program: String) throws -> String {
        let name = String(program.dropFirst())
        let copy = folder.appending(path: name)
        if !FileManager.default.fileExists(atPath: copy.path) {
            _ = try output(of: ["strip", "-g", "-o", copy.path, locations.path(of: name)])
        }
        return copy.path
    }
}

extension Counter.Kind {
    /// The tool that must be installed.
    var program: String? {
        switch self {
        case .instructions: "valgrind"
        case .systemCalls: "strace"
        case .allocations, .memory: nil
        }
    }

    /// Whether the tool is installed and works.
    var isAvailable: Bool {
        guard let program else { return true }
        let test = program == "strace" ? ["strace", "-o", "/dev/null", "true"] : [program, "--version"]
        return (try? output(of: test)) != nil
    }
}
