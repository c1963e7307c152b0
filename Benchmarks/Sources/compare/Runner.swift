import Foundation
import Measuring

/// Runs the experiments and the cost counts.
final class Runner {
    private let locations: Locations
    private let plan: Plan
    /// The number of failed runs, which are omitted from the results.
    private(set) var failures = 0

    init(locations: Locations, plan: Plan) {
        self.locations = locations
        self.plan = plan
    }

    func report(on workload: Workload) -> Report {
        var measured = workload.experiments.map { experiment in
            (
                experiment: experiment,
                results: plan.sizes(of: experiment).map { (size: $0, results: Results()) }
            )
        }
        for round in 1...plan.rounds {
            printStatus("\(workload.name): round \(round) of \(plan.rounds)")
            for index in measured.indices {
                for size in measured[index].results.indices {
                    runOnce(measured[index].experiment, &measured[index].results[size])
                }
            }
        }
        return Report(workload, measured)
    }

    /// Peers take turns, so that other load on the machine affects all of them.
    private func runOnce(_ experiment: Experiment, _ entry: inout (size: Size, results: Results)) {
        for peer in experiment.peers(at: entry.size, in: plan) {
            let command = experiment.command(peer, entry.size.value)
            guard isBuilt(command) else { continue }
            do { entry.results.append(try numbers(of: locations.resolved(command)), of: peer) } catch {
                printStatus("\(error)")
                failures += 1
                entry.results.append([], of: peer)
            }
        }
    }

    private func isBuilt(_ command: [String]) -> Bool {
        command.filter { $0.hasPrefix("@") }.allSatisfy { locations.has(String($0.dropFirst())) }
    }

    /// NaN if the tool fails: valgrind does not support everything that Dispatch does.
    private func cost(of operation: Operation, _ peer: String, _ kind: Counter.Kind, by counter: Counter)
        -> Double
    {
        do { return try counter.cost(of: operation, peer, kind) } catch {
            printStatus("\(error)")
            return .nan
        }
    }

    /// Counts the costs of small operations.
    func costs(with counter: Counter) -> Report {
        let counted: [Counter.Kind] = [.instructions, .systemCalls, .allocations]
        let kinds = counted.filter(\.isAvailable)
        for kind in counted where !kind.isAvailable {
            printStatus(
                "Not counted: \(kind.rawValue). \(kind.program ?? "The tool") is missing or does not work.")
        }
        var text = """
            The cost of one operation in \(kinds.map(\.rawValue).joined(separator: ", ")), counted with valgrind, strace \
            and a wrapper of malloc: the difference between a long and a short run, which excludes start-up. A dash \
            means that valgrind cannot run the program.

            """
        for operation in Operation.all {
            printStatus("costs: \(operation.name)")
            var results = Results()
            for peer in operation.peers where plan.wants(peer) && isBuilt(operation.command(peer, 1)) {
                results.append(kinds.map { cost(of: operation, peer, $0, by: counter) }, of: peer)
            }
            let columns = kinds.map {
                Column(stringLiteral: $0 == .allocations ? $0.rawValue : "\($0.rawValue)*")
            }
            text += "\n**\(operation.name): \(operation.work)**\n\n\(Table(results, columns: columns).text)"
        }
        return Report(name: "costs", text: text, chart: nil)
    }
}
