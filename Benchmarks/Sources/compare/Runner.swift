import Foundation
import Measuring

/// Runs what is to be compared.
final class Runner {
    private let place: Place
    private let plan: Plan
    /// How many runs have failed: they are left out, and the rest goes on.
    private(set) var failures = 0

    init(place: Place, plan: Plan) {
        self.place = place
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
            say("\(workload.name): round \(round) of \(plan.rounds)")
            for index in measured.indices {
                for place in measured[index].results.indices {
                    runOnce(measured[index].experiment, &measured[index].results[place])
                }
            }
        }
        return Report(workload, measured)
    }

    /// Peers take turns, so that what disturbs one disturbs all.
    private func runOnce(_ experiment: Experiment, _ entry: inout (size: Size, results: Results)) {
        for peer in experiment.peers(at: entry.size, in: plan) {
            let command = experiment.command(peer, entry.size.value)
            guard isBuilt(command) else { continue }
            do { entry.results.append(try numbers(of: place.resolved(command)), of: peer) } catch {
                say("\(error)")
                failures += 1
                entry.results.append([], of: peer)
            }
        }
    }

    private func isBuilt(_ command: [String]) -> Bool {
        command.filter { $0.hasPrefix("@") }.allSatisfy { place.has(String($0.dropFirst())) }
    }

    /// Not a number where the tool cannot: valgrind does not run all that Dispatch does.
    private func cost(of operation: Operation, _ peer: String, _ kind: Counter.Kind, by counter: Counter)
        -> Double
    {
        do { return try counter.cost(of: operation, peer, kind) } catch {
            say("\(error)")
            return .nan
        }
    }

    /// What small operations cost, counted rather than timed.
    func costs(with counter: Counter) -> Report {
        let kinds = Counter.Kind.allCases.filter(\.isAvailable)
        for kind in Counter.Kind.allCases where !kind.isAvailable {
            say("Not counted: \(kind.rawValue). There is no working \(kind.program ?? "tool").")
        }
        var text = """
            What one operation costs a program in \(kinds.map(\.rawValue).joined(separator: ", ")), by valgrind, strace \
            and a count of malloc's calls: the difference of a long and a short run, so that start-up falls out. A dash: \
            valgrind does not run the program.

            """
        for operation in Operation.all {
            say("costs: \(operation.name)")
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
