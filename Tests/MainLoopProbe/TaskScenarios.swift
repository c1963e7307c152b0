import Glibc
import Reactor
import SystemPackage

// MARK: Tasks and the main actor

/// Which callbacks of the main loop the main actor is isolated to.
@MainActor func mainActorInCallbacks() throws {
    let loop = RunLoop.main
    let pipe = try FileDescriptor.pipe()
    _ = try pipe.writeEnd.writeAll([1])
    loop.add(RunLoop.Observer(for: .entry) { _, _ in tell("observer") }, forMode: .default)
    loop.perform { tell("block") }
    let source = RunLoop.Source { tell("source") }
    loop.add(source, forMode: .default)
    source.signal()
    Timer.scheduled(after: .zero) { _ in tell("timer") }
    let descriptor = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
        tell("descriptor")
        source.cancel()
    }
    try loop.add(descriptor, forMode: .default)
    let input = InputStream(data: [1])
    let delegate = HandlerDelegate { _, event in if event == .openCompleted { tell("stream") } }
    input.delegate = delegate
    input.schedule(in: loop, forMode: .default)
    input.open()
    loop.run(in: .default, until: .now.advanced(by: .milliseconds(20)))
    Task(executorPreference: loop.executor()) { tell("job") }
    loop.run(in: .default, until: .distantPast)
    input.close()
}

/// Traps unless the main actor is isolated.
private func tell(_ name: String) { MainActor.assumeIsolated { print(name) } }

/// A stream delegate that calls a closure.
final class HandlerDelegate: StreamDelegate {
    private let handler: (Stream, Stream.Event) -> Void

    init(_ handler: @escaping (Stream, Stream.Event) -> Void) { self.handler = handler }

    func stream(_ stream: Stream, handle event: Stream.Event) { handler(stream, event) }
}

private struct Refusal: Error { let reason: String }

/// A synchronous main function that runs the main loop for asynchronous work.
@MainActor func runsAsynchronousWork() throws {
    var greeting = "unset"
    let sum = RunLoop.main.run {
        MainActor.assertIsolated()
        greeting = "set"
        try? await Task.sleep(for: .milliseconds(1))
        print("on main:", RunLoop.main.isCurrent)
        return await nowhereInParticular() + 1
    }
    print(greeting, sum)
    do throws(Refusal) {
        try RunLoop.main.run { () async throws(Refusal) in
            await Task.yield()
            throw Refusal(reason: "typed")
        }
    } catch {
        print(error.reason)
    }
}

/// Isolated to nothing.
@concurrent private func nowhereInParticular() async -> Int {
    print("preferred:", RunLoop.main.isCurrent)
    return 41
}

/// A result that comes while a callback runs the loop.
@MainActor func endsOnlyItsActivation() {
    let isDone = Flag()
    Timer.scheduled(after: .zero) { _ in
        MainActor.assumeIsolated {
            while !isDone.isSet, RunLoop.main.run(mode: .default, before: .distantFuture) {}
            // The result comes after the operation's last job.
            for _ in 0..<3 { print("nested", RunLoop.main.run(in: .default, until: .distantPast)) }
        }
    }
    RunLoop.main.run {
        try? await Task.sleep(for: .milliseconds(1))
        print("result")
        isDone.isSet = true
    }
    print("over")
}

/// A signal cancels the work, and has its own action back after that.
@MainActor func cancelledBySignal() {
    // A test's thread, which starts this program, blocks signals as Dispatch's threads do.
    unblockSignals()
    let text = RunLoop.main.run(cancelledBy: [.terminate]) {
        kill(getpid(), SIGTERM)
        do {
            try await Task.sleep(for: .seconds(3600))
            return "slept"
        } catch {
            return "cancelled \(Task.isCancelled)"
        }
    }
    print(text)
    kill(getpid(), SIGTERM)
}
