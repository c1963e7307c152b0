import Reactor

// Runs a program, with a limit for its output and for its time, and prints what it has written.
do {
    let result = try await ChildProcess.run(
        "git", ["log", "--oneline", "-5"], outputLimit: 100_000, timeout: .seconds(10))
    if result.termination.isSuccess {
        print(String(decoding: result.standardOutput, as: UTF8.self), terminator: "")
    } else {
        print("git \(result.termination.reason): \(String(decoding: result.standardError, as: UTF8.self))")
    }
} catch {
    print(error)  // run git: has not ended in 10.0 seconds
}
