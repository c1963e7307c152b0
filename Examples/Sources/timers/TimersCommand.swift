import ArgumentParser

/// Shows with three timers what the modes of a run loop are for.
@main
struct TimersCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "timers",
        abstract: "Shows with three timers what the modes of a run loop are for.")

    @Flag(help: "Print how often each timer fired in each phase, as one JSON object.")
    var json = false

    @Option(help: "How long the demonstration takes, in seconds.")
    var seconds = 2.0

    func validate() throws {
        guard seconds >= 0.1, seconds <= 3600 else {
            throw ValidationError("The demonstration takes between 0.1 and 3600 seconds.")
        }
    }

    func run() {
        let demonstration = Demonstration(.seconds(seconds), isSilent: json)
        demonstration.run()
        print(json ? demonstration.counts.json : demonstration.counts.table)
    }
}
