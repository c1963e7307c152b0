import Dispatch
import Glibc
import Reactor
import Synchronization
import SystemPackage

/// A child process created by fork(2), which Swift's Glibc does not import.
struct ForkedChild {
    /// Runs `body` in a child and returns how the child ended: "exit", "signal 15", "refused" if it trapped because a
    /// loop belongs to the parent, or "unsent" if it reported that output was not sent.
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

    /// Forks. Returns in the parent and in the child.
    init() {
        guard let pipe = try? FileDescriptor.pipe(), let symbol = dlsym(nil, "fork") else { exit(3) }
        process = unsafeBitCast(symbol, to: (@convention(c) () -> pid_t).self)()
        errors = pipe.readEnd
        if process == 0 {
            dup2(pipe.writeEnd.rawValue, STDERR_FILENO)
            // Disables Swift's backtraces.
            for trap in [SIGILL, SIGTRAP] { signal(trap, SIG_DFL) }
        }
        try? pipe.writeEnd.close()
    }

    func wait() -> String {
        let message = String(decoding: allBytes(of: errors.rawValue), as: UTF8.self)
        try? errors.close()
        var status: CInt = 0
        waitpid(process, &status, 0)
        if message.contains("in a child of fork(2)") { return "refused" }
        if message.contains("sent all that was written") { return "unsent" }
        return status & 0x7F == 0 ? "exit" : "signal \(status & 0x7F)"
    }
}

// MARK: Loops

/// Calls the parent's loops in children, and checks that the parent is not affected.
@MainActor func loopsInChild() throws {
    let loop = RunLoop.main
    let pipe = try FileDescriptor.pipe()
    let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
        print("served")
        source.cancel()
    }
    try loop.add(source, forMode: .default)
    let timer = Timer.scheduled(after: .seconds(3600)) { _ in }
    let mailbox = Mailbox<Int> { _, _ in }
    let other = try RunLoopThread(name: "other")
    let queue = SendQueue(to: .toMemory())
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
        ("enqueue a job", { Task(executorPreference: other.executor) {} }),
        ("wake", { other.runLoop.wakeUp() }),
        ("stop", { loop.stop() }),
        ("stop a thread", { other.stop() }),
        ("invalidate", { timer.invalidate() }),
        ("ask", { precondition(!loop.isCurrent && !other.runLoop.isCurrent) }),
        (
            "explain",
            {
                let texts = [loop.explain(), timer.explain(), source.explain(), mailbox.explain()]
                precondition(texts.allSatisfy { $0.contains("parent process") }, "\(texts)")
            }
        ),
        (
            "send by a queue",
            {
                do { try queue.send("x") } catch let error as IOError where error.errno == .notSupported {
                    return
                } catch {}
                raise(SIGKILL)
            }
        ),
        ("end the thread", { pthread_exit(nil) }),
        ("nothing", {}),
    ]
    for (name, request) in requests { print("\(name):", ForkedChild.ending(request)) }
    _ = try pipe.writeEnd.writeAll([1])
    loop.run(in: .default, returnAfterSourceHandled: true)
    print(timer.isValid, other.runLoop.performAndWait { "woken" })
}

/// Forks in a handler, which returns in the parent and in the child.
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

/// Raises signals in a child whose parent has sources for them.
@MainActor func signalsInChild() throws {
    let (ignored, fatal) = (SIGUSR1, SIGTERM)
    unblockSignals()
    signal(ignored, SIG_IGN)
    var deliveries = 0
    let sources = try [ignored, fatal].map { number in
        try SignalSource(Signal(rawValue: number)) { _, count in deliveries += count }
    }
    for source in sources { try RunLoop.main.add(source, forMode: .custom) }
    print("ignored:", ForkedChild.ending { raise(ignored) })
    print("deadly:", ForkedChild.ending { raise(fatal) })
    RunLoop.main.run(in: .custom, until: .distantPast)
    print("in the parent:", deliveries)
    for number in [ignored, fatal] { raise(number) }
    RunLoop.main.run(in: .custom, until: .distantPast)
    print("caught:", deliveries)
    for source in sources { source.cancel() }
}

/// Forks on a thread that has no loop. The child creates its own loop and signal source.
@MainActor func freshLoopInChild() throws {
    let other = try RunLoopThread(name: "other")
    let inParent = try other.runLoop.performAndWait { () throws -> FileDescriptor in
        let pipe = try FileDescriptor.pipe()
        let source = try SignalSource(.userDefinedOne) { _, _ in _ = try? pipe.writeEnd.writeAll([1]) }
        try RunLoop.current.add(source, forMode: .default)
        return pipe.readEnd
    }
    unblockSignals()
    let ending = ForkedChild.ending {
        let source = try? SignalSource(.userDefinedOne) { source, count in
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

// MARK: Streams and sockets

/// Closes, in a child, streams with bytes that the parent has not yet sent.
@MainActor func inheritedStreamsInChild() throws {
    let (peer, number) = try narrowPair()
    let (input, output) = Connection(
        descriptor: FileDescriptor(rawValue: number)
    ).streams
    output.writeBufferSize = 65_536
    open([input, output])
    var sent = 0
    while case let count = output.write([UInt8](repeating: 1, count: 5000)), count > 0 { sent += count }
    let ending = ForkedChild.ending {
        let isRefused = output.write([2], maxLength: 1) == -1
        // Not `print`, which takes a lock of Swift's runtime that another thread may have held at the fork.
        let line: StaticString = isRefused ? "written: -1\n" : "written\n"
        _ = Glibc.write(STDOUT_FILENO, line.utf8Start, line.utf8CodeUnitCount)
        for stream in [input, output] { stream.close() }
    }
    print("closed:", ending)
    for stream in [input, output] { stream.close() }
    print("everything:", allBytes(of: peer) == [UInt8](repeating: 1, count: sent))
}

/// Closes, in a child, streams that the parent is connecting.
@MainActor func connectingStreamsInChild() throws {
    // The kernel connects two clients that no one accepts, and more clients wait.
    let listener = try Listener(.ipv4Loopback(port: 0), options: .init(backlog: 0)) { _, _ in
    } acceptErrors: {
        print($1)
    }
    let before = openSocketCount()
    let pairs = (0..<4).map { _ in Connection(to: listener.localAddress).streams }
    let streams = pairs.flatMap { [$0.input, $0.output] as [Stream] }
    open(streams)
    while openSocketCount() < before + pairs.count { sched_yield() }
    print("closed:", ForkedChild.ending { for stream in streams { stream.close() } })
    print("connecting:", streams.contains { $0.streamStatus == .opening })
    for stream in streams { stream.close() }
}

private func openSocketCount() -> Int {
    (0..<1000).count { number in
        var status = stat()
        return fstat(CInt(number), &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK
    }
}

/// Closes, in a child, a stream that a loop of the parent hands off. The child shares the loop's event counter.
@MainActor func handoffInChild() throws {
    let (pipe, other) = (try FileDescriptor.pipe(), try RunLoopThread(name: "other"))
    let wakeUps = Count()
    // Any thread may close a stream.
    nonisolated(unsafe) let stream = InputStream(descriptor: pipe.readEnd)
    other.runLoop.performAndWait {
        let observer = RunLoop.Observer(for: .afterWaiting) { _, _ in
            wakeUps.value.add(1, ordering: .relaxed)
        }
        RunLoop.current.add(observer, forMode: .default)
        ChunkHandoff(stream, to: Ignored(), on: .global()).start { _ in }
    }
    while !other.runLoop.isWaiting { sched_yield() }
    let before = wakeUps.value.load(ordering: .relaxed)
    print("closed:", ForkedChild.ending { stream.close() })
    other.runLoop.performAndWait {}
    print("wake-ups:", wakeUps.value.load(ordering: .relaxed) - before)
    other.stop()
}

private final class Count: Sendable { let value = Atomic(0) }

private struct Ignored: ChunkProcessor {
    var output: Void {}

    mutating func process(_ chunk: RawSpan) {}
}

/// Closes, in a child, a stream that a thread of the parent is reading.
@MainActor func readStreamInChild() throws {
    let pipe = try FileDescriptor.pipe()
    // Any thread may close a stream.
    nonisolated(unsafe) let stream = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
    stream.open()
    let reader = try RunLoopThread(name: "reader")
    reader.runLoop.perform {
        var byte: UInt8 = 0
        stream.read(&byte, maxLength: 1)
    }
    while stream.streamStatus != .reading { sched_yield() }
    // The thread sets the status before it begins to wait.
    usleep(10_000)
    let ending = ForkedChild.ending {
        stream.close()
        if fcntl(pipe.readEnd.rawValue, F_GETFD) >= 0 { raise(SIGKILL) }
    }
    print("closed:", ending)
    _ = try pipe.writeEnd.writeAll([1])
    reader.stop()
}

/// Closes, in children, a file that a worker of the parent is writing.
@MainActor func inheritedFileInChild() throws {
    let file = "/tmp/reactor-probe-file-\(getpid())"
    let piece = [UInt8](repeating: 1, count: 500_000)
    func openFile() -> OutputStream {
        let output = OutputStream(path: FilePath(file))
        open([output])
        return output
    }
    // The first write of a process makes its worker instantiate types, under a lock of the Swift runtime that would be locked
    // in the child forever.
    let first = openFile()
    _ = first.write(piece)
    first.close()
    let output = openFile()
    var (accepted, endings) = (0, Set<String>())
    for _ in 0..<30 {
        accepted += output.write(piece)
        endings.insert(
            ForkedChild.ending {
                alarm(30)  // A wait for the worker, which is not in the child, would never end.
                output.close()
            })
    }
    print("closed:", endings.sorted().joined(separator: ", "))
    output.close()
    var status = stat()
    stat(file, &status)
    unlink(file)
    print("everything:", status.st_size == accepted)
}

/// Closes, in a child, the parent's sockets that are bound to paths, as a server's forked workers do.
@MainActor func boundPathsInChild() throws {
    let paths = ["listener", "datagrams"].map { "/tmp/reactor-probe-\(getpid())-\($0)" }
    let listener = try Listener(SocketAddress(unixPath: FilePath(paths[0]))) { _, _ in
    } acceptErrors: {
        print($1)
    }
    let socket = try DatagramSocket(boundTo: SocketAddress(unixPath: FilePath(paths[1]))) { _, _, _ in
    } events: {
        print($1)
    }
    func close() {
        listener.close()
        socket.close()
    }
    print("closed:", ForkedChild.ending(close))
    print("there:", paths.allSatisfy { access($0, F_OK) == 0 })
    close()
    print("gone:", paths.allSatisfy { access($0, F_OK) != 0 })
}

/// Exits from a child that inherits pending output.
@MainActor func inheritedOutput() throws {
    let (peer, number) = try narrowPair()
    let pending = try writePending(1, to: number)
    print("child:", ForkedChild.ending {})
    pending.close()
    close(number)
    print("the parent's:", allBytes(of: peer).count)
}

/// Exits from a child that has pending output of its own. The parent has not used the library: its threads could have
/// held locks of the Swift runtime that are then locked in the child forever.
@MainActor func ownStreamsInChild() throws {
    let (peer, number) = try narrowPair()
    let child = ForkedChild()
    if child.isChild {
        close(peer)
        _ = Unmanaged.passRetained(try writePending(2, to: number))
        exit(0)
    }
    close(number)
    print("everything:", allBytes(of: peer) == [UInt8](repeating: 2, count: 50_000))
    print("child:", child.wait())
}

/// A stream that has accepted 50,000 bytes, more than the kernel takes.
private func writePending(_ byte: UInt8, to number: CInt) throws -> OutputStream {
    let output = OutputStream(descriptor: FileDescriptor(rawValue: number))
    output.writeBufferSize = 100_000
    output.open()
    _ = output.write([UInt8](repeating: byte, count: 50_000))
    return output
}

// MARK: -

/// Opens streams on the main loop.
@MainActor private func open(_ streams: [Stream]) {
    for stream in streams {
        stream.schedule(in: .main, forMode: .default)
        stream.open()
    }
}

/// A socket pair with small send buffers.
private func narrowPair() throws -> (peer: CInt, other: CInt) {
    var numbers: [CInt] = [0, 0]
    guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &numbers) == 0 else { exit(3) }
    var size: CInt = 4096
    for number in numbers {
        setsockopt(number, SOL_SOCKET, SO_SNDBUF, &size, socklen_t(MemoryLayout<CInt>.size))
    }
    return (numbers[0], numbers[1])
}

private let firstProcess = getpid()

/// Called by the leak checker of `--sanitize=address` at exit. In a forked child, it would report objects that are
/// referenced only from the stacks of the parent's other threads.
@_cdecl("__lsan_is_turned_off")
func isLeakCheckTurnedOff() -> CInt { getpid() == firstProcess ? 0 : 1 }
