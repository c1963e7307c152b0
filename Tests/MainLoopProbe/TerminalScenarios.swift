@preconcurrency import Glibc
import Reactor

/// Runs a body in a terminal's mode that ends as the first argument says.
func terminalInMode() throws {
    try Terminal().withMode(.cbreak, entering: "entering\n", leaving: "leaving\n") {
        switch CommandLine.arguments[1] {
        case "exit": exit(7)
        case "trap": fatalError("a trap")
        case "fork":
            _ = ForkedChild.ending { exit(0) }
        case "caught":
            // The second signal has its own action again.
            let source = try SignalSource(.interrupt) { source, _ in
                source.cancel()
                raise(SIGINT)
            }
            try RunLoop.main.add(source, forMode: .default)
            raise(SIGINT)
            RunLoop.main.run(in: .default)
        case "stop", "subscribed": try waitForKey()
        case let name:
            let signals = [
                "INT": SIGINT, "TERM": SIGTERM, "HUP": SIGHUP, "PIPE": SIGPIPE, "ABRT": SIGABRT,
                "SEGV": SIGSEGV,
            ]
            raise(signals[name]!)
        }
    }
}

/// Returns when q is pressed.
private func waitForKey() throws {
    if CommandLine.arguments[1] == "subscribed" {
        try RunLoop.main.add(SignalSource(.resume) { _, _ in }, forMode: .tracking)
    }
    print("waiting")
    fflush(stdout)
    let input = InputStream(descriptor: .standardInput)
    input.open()
    while input.read(upTo: 1) != [UInt8(ascii: "q")] {}
}

/// Prints the sizes of the terminal, until it has one row.
func terminalSizes() throws {
    let task = Task { @MainActor in
        for try await size in try RunLoop.main.sizes(of: Terminal()) {
            print(size.rows, size.columns)
            fflush(stdout)
            if size.rows == 1 { break }
        }
        RunLoop.main.stop()
    }
    RunLoop.main.run(in: .default)
    withExtendedLifetime(task) {}
}
