import Glibc
import Reactor

/// Marks the begin or the end of what the injector may disturb: a write(2) to descriptor -1 of 0 or of 1 bytes.
func mark(begins: Bool) {
    var byte: UInt8 = 0
    _ = write(-1, &byte, begins ? 0 : 1)
}

/// The promise was kept. Counts the descriptors when what the workload has closed had time to end.
func right(_ result: String) {
    mark(begins: false)
    Timer.scheduled(after: .milliseconds(30), forMode: .common) { _ in
        end("right \(result) open=\(openDescriptors())", 0)
    }
}

/// The library has reported an error.
func told(_ error: any Error) -> Never { end("told: \(error)", 1) }

/// The promise was not kept, and no error was reported.
func fail(_ what: String) -> Never { end("wrong: \(what)", 2) }

/// The library has reported an error, and continues.
func note(_ error: any Error) {
    print("told: \(error)")
    fflush(nil)
}

private func end(_ text: String, _ status: CInt) -> Never {
    mark(begins: false)
    print(text)
    fflush(nil)
    _exit(status)
}

/// How many descriptors of files, pipes and sockets are open, and how many of counters, timers and epolls. Dispatch makes some
/// of the latter once, when it first needs them.
private func openDescriptors() -> String {
    var counts = [0, 0]
    for number in 0..<1000 as Range<CInt> {
        var status = stat()
        if fstat(number, &status) == 0 { counts[status.st_mode & S_IFMT == 0 ? 1 : 0] += 1 }
    }
    return "\(counts[0])+\(counts[1])"
}

func attempt(_ body: () throws -> Void) {
    do { try body() } catch { told(error) }
}

/// Runs the main loop until a task with the workload has ended.
func run(_ body: @escaping @MainActor @Sendable () async throws -> String) {
    attempt { right(try RunLoop.main.run { () async throws in try await body() }) }
}
