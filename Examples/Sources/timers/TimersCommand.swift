import ArgumentParser
import ExampleSupport

/// Demonstrates the modes of a run loop with three timers.
@main
struct TimersCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "timers",
        abstract: "Demonstrates the modes of a run loop with three timers.")

    @Flag(help: "Print how often each timer fired in each phase, as one JSON object.")
    var json = false

    @Option(help: "The duration of the demonstration, in seconds.")
    var seconds = 2.0

    func validate() throws {
        guard seconds >= 0.1, seconds <= 3600 else {
            throw ValidationError("--seconds must be between 0.1 and 3600.")
        }
    }

    func run() {
        let demonstration = Demonstration(duration: .seconds(seconds), isQuiet: json)
        demonstration.run()
        MainProgram.printLine(json ? demonstration.counts.json : demonstration.counts.table)
    }
}
