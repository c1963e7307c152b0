// hostile-foundation WORKLOAD  A workload of Hostile/README.md on the main RunLoop. File handles have queues of Dispatch.

import CoreFoundation
import Foundation
import Outcome

@main
enum Peer {
    private static let workloads: KeyValuePairs<String, @Sendable () throws -> Void> = [
        "timer": timer, "timers": timers, "ring": ring, "child": child, "posts": posts, "nested": nested,
    ]

    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        let name = CommandLine.arguments.dropFirst().first ?? ""
        if name == "--list" { return print(workloads.map(\.key).joined(separator: " ")) }
        if name == "--version" { return print("Foundation of the Swift toolchain") }
        guard let workload = workloads.first(where: { $0.key == name })?.value else {
            fail("no workload \(name)")
        }
        mark(begins: true)
        do { try workload() } catch { reported(error) }
        RunLoop.main.run()
        fail("the loop has nothing to wait for")
    }

    /// Ends the program when what the workload has closed had time to end.
    fileprivate static func finish(_ result: String) -> Never {
        mark(begins: false)
        Thread.sleep(forTimeInterval: 0.03)
        right(result)
    }
}

// MARK: - Timers

/// The state of the workloads, which only the main thread uses.
private enum State {
    nonisolated(unsafe) static var running = 3
    nonisolated(unsafe) static var isNested = false
    nonisolated(unsafe) static var counts = (other: 0, inner: 0)
    nonisolated(unsafe) static var next = 0
    nonisolated(unsafe) static var signals: (any DispatchSourceSignal)?
    nonisolated(unsafe) static var (hasSignal, hasEnded) = (false, false)
}

/// Monotonic, as the dates of timers are not.
private func now() -> TimeInterval { ProcessInfo.processInfo.systemUptime }

@Sendable private func timer() {
    let begin = now()
    _ = Timer.scheduledTimer(withTimeInterval: 0.02, repeats: false) { _ in
        if now() - begin < 0.02 { fail("early") }
        _ = Timer.scheduledTimer(withTimeInterval: 0.02, repeats: false) { _ in
            if now() - begin < 0.04 { fail("early") }
            Peer.finish("2")
        }
    }
}

@Sendable private func timers() {
    let begin = now()
    for interval in [0.002, 0.003, 0.005] {
        nonisolated(unsafe) var count = 0
        _ = Timer.scheduledTimer(withTimeInterval: interval, repeats: true) { timer in
            count += 1
            if count > 20 { fail("fired after its end") }
            if now() - begin < Double(count) * interval { fail("early") }
            guard count == 20 else { return }
            timer.invalidate()
            State.running -= 1
            if State.running == 0 { Peer.finish("60") }
        }
    }
}

/// CFRunLoopStop ends the nested loop, because a timer does not end run(mode:before:) on Linux, and RunLoop has no stop().
@Sendable private func nested() {
    let dialog = RunLoop.Mode("dialog")
    _ = Timer.scheduledTimer(withTimeInterval: 0.002, repeats: true) { _ in
        if State.isNested { fail("a timer of another mode fired") }
        State.counts.other += 1
    }
    _ = Timer.scheduledTimer(withTimeInterval: 0.02, repeats: false) { _ in
        State.isNested = true
        let inner = Timer(timeInterval: 0.002, repeats: true) { timer in
            State.counts.inner += 1
            guard State.counts.inner == 5 else { return }
            timer.invalidate()
            CFRunLoopStop(CFRunLoopGetCurrent())
        }
        RunLoop.current.add(inner, forMode: dialog)
        while inner.isValid, RunLoop.current.run(mode: dialog, before: .distantFuture) {}
        State.isNested = false
        let before = State.counts.other
        _ = Timer.scheduledTimer(withTimeInterval: 0.02, repeats: false) { _ in
            if State.counts.inner != 5 || State.counts.other == before { fail("\(State.counts)") }
            Peer.finish("5")
        }
    }
}

// MARK: - Posts

/// CFRunLoopWakeUp, because perform does not wake the loop on Linux.
@Sendable private func posts() {
    Thread.detachNewThread {
        for number in 0..<1000 {
            RunLoop.main.perform {
                if number != State.next { fail("block \(number) in place of \(State.next)") }
                State.next += 1
                if State.next == 1000 { Peer.finish("1000") }
            }
            CFRunLoopWakeUp(CFRunLoopGetMain())
        }
    }
}

// MARK: - Pipes

/// A pipe's initializer does not throw: without descriptors, it has invalid ones.
private func makePipe() -> Pipe {
    let pipe = Pipe()
    if pipe.fileHandleForReading.fileDescriptor < 0 { reported("a pipe has no descriptors") }
    return pipe
}

@Sendable private func ring() throws {
    try Ring().start()
}

/// Five pipes. A byte goes round, and counts up. `@unchecked Sendable` is correct: the lock protects the count.
private final class Ring: @unchecked Sendable {
    private let pipes = (0..<5).map { _ in makePipe() }
    private let lock = NSLock()
    private var count = 0

    func start() throws {
        for (index, pipe) in pipes.enumerated() {
            pipe.fileHandleForReading.readabilityHandler = { [self] handle in
                do { try pass(handle.availableData, on: index) } catch { reported(error) }
            }
        }
        try pipes[0].fileHandleForWriting.write(contentsOf: Data([0]))
    }

    private func pass(_ bytes: Data, on index: Int) throws {
        lock.lock()
        defer { lock.unlock() }
        if count == 100 { return }
        guard Array(bytes) == [UInt8(count)], index == count % pipes.count else {
            fail("bytes \(Array(bytes)) at \(index), not \(count)")
        }
        count += 1
        if count < 100 {
            return try pipes[count % pipes.count].fileHandleForWriting.write(contentsOf: Data([UInt8(count)]))
        }
        DispatchQueue.main.async { [self] in
            do { try close() } catch { reported(error) }
            Peer.finish("100")
        }
    }

    /// Not in a handler, which a file handle waits for when it is closed.
    private func close() throws {
        for pipe in pipes { pipe.fileHandleForReading.readabilityHandler = nil }
        for pipe in pipes {
            try pipe.fileHandleForWriting.close()
            try pipe.fileHandleForReading.close()
        }
    }
}

/// Foundation has nothing for signals: a source of Dispatch takes them, in the main queue, which the loop runs.
@Sendable private func child() throws {
    var blocked = sigset_t()
    sigemptyset(&blocked)
    sigaddset(&blocked, SIGUSR1)
    // The threads of Dispatch inherit the mask. Dispatch reads the signals with signalfd(2).
    pthread_sigmask(SIG_BLOCK, &blocked, nil)
    let source = DispatchSource.makeSignalSource(signal: SIGUSR1, queue: .main)
    source.setEventHandler {
        source.cancel()
        State.hasSignal = true
        if State.hasEnded { Peer.finish("3") }
    }
    source.activate()
    State.signals = source

    let output = makePipe()
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/bin/sh")
    process.arguments = ["-c", "echo hello; kill -USR1 $PPID; exit 3"]
    process.standardOutput = output
    try process.run()
    let bytes = try output.fileHandleForReading.readToEnd() ?? Data()
    try output.fileHandleForReading.close()
    process.waitUntilExit()
    if process.terminationReason != .exit || process.terminationStatus != 3 {
        reported("the child has ended with \(process.terminationStatus)")
    }
    if bytes != Data("hello\n".utf8) { fail("the line \(String(decoding: bytes, as: UTF8.self))") }
    State.hasEnded = true
    if State.hasSignal { Peer.finish("3") }
}
