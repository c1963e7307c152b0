import Dispatch
import Glibc
import Reactor
import SystemPackage

// MARK: fork(2)

/// A child process without exec. Swift's Glibc does not import fork(2).
struct ForkedChild {
    /// Waits for a child that runs `body`, and says how it has ended: "exit", "signal 15", or "refused" if it has said
    /// that a loop is the parent's.
    static func ending(_ body: () -> Void) -> String {
        let child = ForkedChild()
        if child.isChild {
            body()
            exit(0)
        }
        return child.wait()
    }

    var isChild: Bool { process == 0 }

    private let process: pid_t
    private let errors: FileDescriptor

    /// Forks: there is one of these in the parent, and one in the child.
    init() {
        guard let pipe = try? FileDescriptor.pipe(), let symbol = dlsym(nil, "fork") else { exit(3) }
        process = unsafeBitCast(symbol, to: (@convention(c) () -> pid_t).self)()
        errors = pipe.readEnd
        if process == 0 {
            dup2(pipe.writeEnd.rawValue, STDERR_FILENO)
            // Without Swift's traces of the stack.
            for trap in [SIGILL, SIGTRAP] { signal(trap, SIG_DFL) }
        }
        try? pipe.writeEnd.close()
    }

    func wait() -> String {
        var text: [UInt8] = []
        var byte: UInt8 = 0
        while read(errors.rawValue, &byte, 1) == 1 { text.append(byte) }
        try? errors.close()
        var status: CInt = 0
        waitpid(process, &status, 0)
        if String(decoding: text, as: UTF8.self).contains("in a child of fork(2)") { return "refused" }
        return status & 0x7F == 0 ? "exit" : "signal \(status & 0x7F)"
    }
}

/// What a child may ask of its parent's loops, and what the parent has of it.
@MainActor func loopsInChild() throws {
    let loop = RunLoop.main
    let pipe = try FileDescriptor.pipe()
    let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
        print("served")
        source.cancel()
    }
    try loop.add(source, forMode: .default)
    let timer = Timer.scheduled(after: .seconds(3600)) { _ in }
    let other = try RunLoopThread(name: "other")
    while !other.runLoop.isWaiting { sched_yield() }
    loop.run(in: .default, until: .now)
    let requests: [(String, () -> Void)] = [
        ("run", { loop.run(in: .default, until: .distantPast) }),
        ("run before", { _ = RunLoop.main.run(mode: .default, before: .distantPast) }),
        ("current", { _ = RunLoop.current }),
        ("schedule", { Timer.scheduled(after: .zero) { _ in } }),
        ("add a timer", { loop.add(Timer(interval: .zero) { _ in }, forMode: .default) }),
        ("add a source", { other.runLoop.add(RunLoop.Source {}, forMode: .default) }),
        ("cancel", { source.cancel() }),
        ("interest", { try? source.setInterest([]) }),
        ("perform", { other.runLoop.perform {} }),
        ("perform and wait", { other.runLoop.performAndWait {} }),
        ("wake", { other.runLoop.wakeUp() }),
        ("stop", { loop.stop() }),
        ("stop a thread", { other.stop() }),
        ("invalidate", { timer.invalidate() }),
        ("ask", { precondition(!loop.isCurrent && !other.runLoop.isCurrent) }),
        ("end the thread", { pthread_exit(nil) }),
        ("nothing", {}),
    ]
    for (name, request) in requests { print("\(name):", ForkedChild.ending(request)) }
    _ = try pipe.writeEnd.writeAll([1])
    loop.run(in: .default, returnAfterSourceHandled: true)
    print(timer.isValid, other.runLoop.performAndWait { "woken" })
}

/// A handler that forks, and returns in the child too.
@MainActor func forkInHandler() throws {
    let pipe = try FileDescriptor.pipe()
    _ = try pipe.writeEnd.writeAll([1])
    var child: ForkedChild?
    var calls = 0
    let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
        calls += 1
        if child == nil { child = ForkedChild() } else { source.cancel() }
    }
    try RunLoop.main.add(source, forMode: .custom)
    RunLoop.main.run(in: .custom)
    print(child?.wait() ?? "none", calls)
}

/// Signals that a child gets, while its parent catches them.
@MainActor func signalsInChild() throws {
    let (ignored, deadly) = (SIGUSR1, SIGTERM)
    unblock([ignored, deadly])
    signal(ignored, SIG_IGN)
    var deliveries = 0
    let sources = try [ignored, deadly].map { number in
        try SignalSource(number) { _, count in deliveries += count }
    }
    for source in sources { try RunLoop.main.add(source, forMode: .custom) }
    print("ignored:", ForkedChild.ending { raise(ignored) })
    print("deadly:", ForkedChild.ending { raise(deadly) })
    RunLoop.main.run(in: .custom, until: .distantPast)
    print("in the parent:", deliveries)
    for number in [ignored, deadly] { raise(number) }
    RunLoop.main.run(in: .custom, until: .distantPast)
    print("caught:", deliveries)
    for source in sources { source.cancel() }
}

/// A thread without a loop forks: its child has a loop, and signals, of its own.
@MainActor func freshLoopInChild() throws {
    let other = try RunLoopThread(name: "other")
    let inParent = try other.runLoop.performAndWait { () throws -> FileDescriptor in
        let pipe = try FileDescriptor.pipe()
        let source = try SignalSource(SIGUSR1) { _, _ in _ = try? pipe.writeEnd.writeAll([1]) }
        try RunLoop.current.add(source, forMode: .default)
        return pipe.readEnd
    }
    unblock([SIGUSR1])
    let ending = ForkedChild.ending {
        let source = try? SignalSource(SIGUSR1) { source, count in
            print("signals:", count)
            source.cancel()
        }
        if let source { try? RunLoop.current.add(source, forMode: .custom) }
        Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in
            print("timer", RunLoop.current === RunLoop.main)
            raise(SIGUSR1)
        }
        print(RunLoop.current.run(in: .custom))
    }
    print(ending)
    _ = fcntl(inParent.rawValue, F_SETFL, O_NONBLOCK)
    var byte: UInt8 = 0
    other.runLoop.performAndWait {}
    print("in the parent:", read(inParent.rawValue, &byte, 1))
    other.stop()
}

/// Whoever started this program may have had them blocked.
private func unblock(_ signals: [CInt]) {
    var set = sigset_t()
    sigemptyset(&set)
    for signal in signals { sigaddset(&set, signal) }
    pthread_sigmask(SIG_UNBLOCK, &set, nil)
}
