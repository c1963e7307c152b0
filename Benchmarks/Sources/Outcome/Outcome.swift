// The marks of the workloads of Hostile, and the ways to end. Hostile/hostile.h is the same in C.

import Glibc

/// Marks the begin or the end of what the injector may disturb: a write(2) to descriptor -1 of 0 or of 1 bytes.
public func mark(begins: Bool) {
    var byte: UInt8 = 0
    _ = write(-1, &byte, begins ? 0 : 1)
}

/// The promise was kept. Called when everything is closed that the workload has opened.
public func right(_ result: String) -> Never {
    mark(begins: false)
    end("right \(result) open=\(openDescriptors())", 0)
}

/// The library has reported an error.
public func reported(_ error: any Error) -> Never { reported("\(error)") }

/// The library has reported an error that is not an `Error`.
public func reported(_ what: String) -> Never { end("reported: \(what)", 1) }

/// The promise was not kept, and no error was reported.
public func fail(_ what: String) -> Never { end("wrong: \(what)", 2) }

/// The library has reported an error, and continues.
public func note(_ error: any Error) {
    print("reported: \(error)")
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
