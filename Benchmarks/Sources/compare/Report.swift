import Foundation

/// The results of a workload, or of the cost counts, as Markdown and as a chart.
struct Report {
    let name: String
    let text: String
    let chart: Chart?

    /// The lines about costs of this library that grow faster than the logarithm.
    var warnings: [Substring] {
        text.split(separator: "\n").filter { $0.contains("`reactor`") && $0.contains(Growth.worse) }
    }
}

extension Report {
    init(
        _ workload: Workload,
        _ measured: [(experiment: Experiment, results: [(size: Size, results: Results)])]
    ) {
        var text = "\(workload.work)\n"
        var groups: [Chart.Group] = []
        for (experiment, results) in measured {
            for (size, results) in results where size.isForAll && !results.peers.isEmpty {
                text += "\n**\(experiment.name), \(grouped(size.value)) \(experiment.unit)**\n\n"
                let absent = experiment.absences.keys.sorted().filter { !results.peers.contains($0) }
                text += Table(results, columns: experiment.columns, absent: absent).text
                if let group = Chart.Group(experiment, size, results) { groups.append(group) }
            }
            if let table = Growth.table(experiment, results) {
                text += "\nGrowth of “\(experiment.name)”:\n\n\(table.text)"
            }
        }
        let absences = Set(workload.experiments.flatMap { $0.absences.map { "`\($0)`: \($1)\n" } })
        if !absences.isEmpty { text += "\n" + absences.sorted().joined(separator: "\n") }
        self.init(name: workload.name, text: text, chart: groups.isEmpty ? nil : Chart(groups: groups))
    }
}

/// Writes the page and its charts.
struct Page {
    let folder: URL
    let machine: Machine
    let plan: Plan

    func write(_ reports: [Report]) throws {
        let charts = folder.appending(path: "charts")
        try FileManager.default.createDirectory(at: charts, withIntermediateDirectories: true)
        var text = introduction
        for report in reports {
            text += "\n## \(report.name)\n\n"
            if let chart = report.chart {
                let file = "\(report.name).svg"
                try chart.text.write(to: charts.appending(path: file), atomically: true, encoding: .utf8)
                text += "![\(report.name): times the baseline](charts/\(file))\n\n"
            }
            text += report.text
        }
        try text.write(to: folder.appending(path: "RESULTS.md"), atomically: true, encoding: .utf8)
    }

    private var introduction: String {
        """
        # Results

        Written by `scripts/bench`; [README.md](README.md) describes the method. Programs take turns for \(plan.rounds) \
        rounds. A number is the median, and `±` is half the range. A ratio to `raw`, the baseline, is the median of the \
        ratios within each round, with the lowest and the highest. `control` is the baseline again: the distance of its \
        ratio from one is the noise. Processor time is more reliable than wall time. Charts have a logarithmic scale. \
        “Grows as” fits a power of the size to the costs; “≤ log n” allows the growth of the logarithm over the same \
        sizes, plus noise.

        \(machine.table.text)
        """
    }
}
