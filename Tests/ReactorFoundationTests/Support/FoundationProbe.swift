import ReactorTestSupport

/// Runs a scenario of the program `foundation-probe`, and answers the lines that it has printed.
func probeFoundation(_ scenario: String) async throws -> [String] {
    try await onItsOwnThread { try finish(Child("foundation-probe", [scenario])) }
}

/// Waits for a probe's end, and answers the lines that are left.
func finish(_ probe: Child) -> [String] {
    let lines = probe.readOutput().split(separator: "\n").map(String.init)
    let ending = probe.wait()
    return ending == .exit(0) ? lines : lines + ["\(ending)"]
}
