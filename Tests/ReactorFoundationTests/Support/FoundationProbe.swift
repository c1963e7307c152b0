import ReactorTestSupport

/// Runs a scenario of the program `foundation-probe` and returns the lines that it prints.
func runFoundationProbe(_ scenario: String) async throws -> [String] {
    try await onItsOwnThread { try remainingLines(of: Child("foundation-probe", [scenario])) }
}

/// Waits until a probe exits and returns its unread lines; if it fails, the exit status is the last line.
func remainingLines(of probe: Child) -> [String] {
    let lines = probe.readOutput().split(separator: "\n").map(String.init)
    let ending = probe.wait()
    return ending == .exit(0) ? lines : lines + ["\(ending)"]
}
