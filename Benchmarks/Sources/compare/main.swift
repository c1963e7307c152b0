// compare PROGRAMS PACKAGE [--quick] [--rounds N] [--peers NAME,…] [--page FOLDER] [--check FILE] [WORKLOAD]…
//
// Runs the given workloads, or all of them and the cost counts. Prints their tables, and writes a page and charts to
// FOLDER. With --check, only counts the costs of the operations in FILE, and fails if one exceeds its limit. Called by
// scripts/bench.

import Foundation

struct Request {
    var plan = Plan()
    var page: URL?
    var thresholds: URL?
    var names: [String] = []

    private static func number(_ text: String) throws -> Int {
        if let number = Int(text), number > 0 { return number }
        throw Failure(description: "--rounds must be a positive number: \(text)")
    }

    init(_ arguments: ArraySlice<String>) throws {
        var arguments = arguments
        func value(_ option: String) throws -> String {
            guard let value = arguments.popFirst() else {
                throw Failure(description: "\(option) requires a value.")
            }
            return value
        }
        while let argument = arguments.popFirst() {
            switch argument {
            case "--quick": plan.isQuick = true
            case "--rounds": plan.rounds = try Self.number(value(argument))
            case "--peers": plan.only = Set(try value(argument).split(separator: ",").map(String.init))
            case "--page": page = URL(filePath: try value(argument))
            case "--check": thresholds = URL(filePath: try value(argument))
            default: names.append(argument)
            }
        }
        if plan.rounds < 1 { plan.rounds = plan.isQuick ? 2 : 5 }
        let known = Workload.all.map(\.name) + ["costs"]
        if let name = names.first(where: { !known.contains($0) }) {
            throw Failure(
                description: "Unknown workload \(name). Workloads: \(known.joined(separator: " ")).")
        }
        if names.isEmpty { names = plan.isQuick ? known.dropLast() : known }
    }
}

func run() throws {
    let request = try Request(CommandLine.arguments.dropFirst(3))
    let locations = Locations(
        programs: URL(filePath: CommandLine.arguments[1]), package: URL(filePath: CommandLine.arguments[2]))
    let folder = FileManager.default.temporaryDirectory.appending(path: "compare-\(getpid())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let counter = Counter(locations: locations, folder: folder)

    if let file = request.thresholds {
        let thresholds = try Thresholds(file: file)
        guard try thresholds.check(with: counter) else {
            throw Failure(description: "The cost of an operation exceeds its limit.")
        }
        return
    }
    let runner = Runner(locations: locations, plan: request.plan)
    var reports: [Report] = []
    for name in request.names {
        let workload = Workload.all.first { $0.name == name }
        let report = workload.map(runner.report(on:)) ?? runner.costs(with: counter)
        print("\n## \(name)\n\n\(report.text)")
        fflush(nil)
        reports.append(report)
        for warning in report.warnings { printStatus("Grows too fast: \(warning)") }
    }
    if let folder = request.page {
        try Page(folder: folder, machine: Machine(package: locations.package), plan: request.plan).write(
            reports)
    }
    if runner.failures > 0 { throw Failure(description: "\(runner.failures) runs failed.") }
}

do {
    try run()
} catch {
    printStatus("\(error)")
    exit(1)
}
