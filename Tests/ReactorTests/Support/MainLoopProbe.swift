import Glibc
import Testing

/// Runs one scenario of the program `main-loop-probe`, or another, and returns the lines that it printed.
///
/// - Parameter arguments: What the scenario wants to know, before its name.
func probeMainLoop(
    _ scenario: String, _ arguments: [String] = [], of program: String = "main-loop-probe"
) async throws -> [String] {
    let child = try Child(program, arguments + [scenario], errors: .path("/proc/\(getpid())/fd/2"))
    let lines = child.readOutput().split(separator: "\n").map(String.init)
    let ending = child.wait()
    return ending == .exit(0) ? lines : lines + ["ended with \(ending)"]
}

/// A scenario of `main-loop-probe`, and what it must print.
struct Probe: Sendable, CustomTestStringConvertible {
    let testDescription: String
    private let scenario: String
    private let lines: [String]

    init(_ claim: String, _ scenario: String, _ lines: [String]) {
        (testDescription, self.scenario, self.lines) = (claim, scenario, lines)
    }

    func run() async throws { #expect(try await probeMainLoop(scenario) == lines) }
}
