import Foundation

/// Counts what a program does, from outside of it.
struct Counter {
    enum Kind: String, CaseIterable {
        case instructions
        case systemCalls = "system calls"
        case allocations
    }

    let place: Place
    /// For what the tools write, and for copies of the programs.
    let folder: URL

    private var log: String { folder.appending(path: "log").path }

    /// What one operation costs.
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
        let resolved = try place.resolved(command)
        // Or Swift's dictionaries would differ from run to run.
        _ = try output(of: ["timeout", "300"] + resolved, environment: ["SWIFT_DETERMINISTIC_HASHING": "1"])
        return try reading(kind)
    }

    private func tool(_ kind: Kind) -> [String] {
        switch kind {
        case .instructions:
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-file=\(log)"]
        case .systemCalls:
            ["strace", "-f", "-c", "-U", "calls,name", "-o", log]
        case .allocations:
            ["env", "COUNT_ALLOCATIONS_IN=\(log)", "LD_PRELOAD=\(place.path(of: "count-allocations.so"))"]
        }
    }

    private func reading(_ kind: Kind) throws -> Double {
        let bytes = try Data(contentsOf: URL(filePath: log))
        if kind == .allocations { return Double(bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }) }
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
        let mark = kind == .instructions ? "Collected" : "total"
        let words = lines.last { $0.contains(mark) }?.split(separator: " ") ?? []
        guard let count = words.compactMap({ Double($0) }).first else {
            throw Failure(description: "There is no count of \(kind.rawValue) in \(log).")
        }
        return count
    }

    /// The path of a copy without debugging information: over Swift's, valgrind stumbles.
    private func stripped(_ program: String) throws -> String {
        let name = String(program.dropFirst())
        let copy = folder.appending(path: name)
        if !FileManager.default.fileExists(atPath: copy.path) {
            _ = try output(of: ["strip", "-g", "-o", copy.path, place.path(of: name)])
        }
        return copy.path
    }
}

extension Counter.Kind {
    /// What has to be installed.
    var program: String? {
        switch self {
        case .instructions: "valgrind"
        case .systemCalls: "strace"
        case .allocations: nil
        }
    }

    /// Whether its tool is there, and works.
    var isAvailable: Bool {
        guard let program else { return true }
        let test = program == "strace" ? ["strace", "-o", "/dev/null", "true"] : [program, "--version"]
        return (try? output(of: test)) != nil
    }
}
