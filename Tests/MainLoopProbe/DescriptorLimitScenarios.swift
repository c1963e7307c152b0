import CReactorTestSupport
import Dispatch
import Glibc
import Reactor
import SystemPackage

// MARK: Running out of descriptors

/// The soft limit on open descriptors. Setting it does not exceed the hard limit.
var descriptorLimit: rlim_t {
    get {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        return limit.rlim_cur
    }
    set {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = min(newValue, limit.rlim_max)
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}

func openDescriptorCount() -> Int { (0..<1024).count { fcntl(CInt($0), F_GETFD) >= 0 } }

/// Opens descriptors until the process reaches its limit. `@unchecked Sendable` is correct: a scenario uses it on one
/// thread after another.
final class ExhaustedDescriptors: @unchecked Sendable {
    private var numbers: [CInt] = []

    var count: Int { numbers.count }

    /// - Parameter spare: The number of descriptors that remain available.
    init(sparing spare: Int) {
        descriptorLimit = min(descriptorLimit, 64)
        while case let number = dup(STDIN_FILENO), number >= 0 { numbers.append(number) }
        free(spare)
    }

    func free(_ count: Int = .max) {
        for number in numbers.suffix(count) { close(number) }
        numbers = numbers.dropLast(count)
    }
}

/// Calls `body` on a new thread with a loop, with none to `most` descriptors available.
private func withFewDescriptors(
    upTo most: Int, _ body: @escaping @Sendable (Int, ExhaustedDescriptors) throws -> Void
) throws {
    for spare in 0...most {
        let exhausted = ExhaustedDescriptors(sparing: spare)
        let thread = try RunLoopThread(name: "few descriptors")
        try thread.runLoop.performAndWait { try body(spare, exhausted) }
        thread.stop()
        exhausted.free()
    }
}

/// Creates loops with few descriptors available. Each runs a timer and a block, and adds a readable descriptor, again when
/// there are descriptors.
@MainActor func fewDescriptors() throws {
    let pipe = try FileDescriptor.pipe()
    _ = try pipe.writeEnd.writeAll([1])
    try withFewDescriptors(upTo: 9) { spare, exhausted in
        let loop = RunLoop.current
        print(spare, terminator: " ")
        Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in print("timer", terminator: " ") }
        loop.perform(inModes: [.custom]) { print("block", terminator: " ") }
        print(loop.run(in: .custom), terminator: " ")
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() }
        do throws(IOError) {
            try loop.add(source, forMode: .custom)
        } catch {
            print(error.errno == .tooManyOpenFiles ? "refused" : "\(error)", terminator: " ")
            exhausted.free()
            try loop.add(source, forMode: .custom)
        }
        print(loop.run(in: .custom))
    }
}

/// Opens streams that need no descriptor, or fail without one, on loops created with few descriptors available.
@MainActor func streamsWithFewDescriptors() throws {
    try withFewDescriptors(upTo: 5) { spare, _ in
        var events: [String] = []
        let record = HandlerDelegate { stream, event in
            events.append("\(event)")
            if event == .hasBytesAvailable { _ = (stream as? InputStream)?.read(upTo: 2) }
            if events.count == 6 { RunLoop.current.stop() }
        }
        let streams = [InputStream(data: [1]), InputStream(path: "/nowhere/at/all"), InputStream(data: [])]
        for stream in streams {
            stream.delegate = record
            stream.schedule(in: RunLoop.current, forMode: .custom)
            stream.open()
        }
        RunLoop.current.run(in: .custom, until: .now.advanced(by: .seconds(60)))
        print(spare, events.sorted().joined(separator: " "))
        for stream in streams { stream.close() }
    }
}

/// Hosts a loop with more and more descriptors available, and prints how many it needs, and how many are open after it.
@MainActor func hostedWithoutDescriptors() throws {
    let exhausted = ExhaustedDescriptors(sparing: 0)
    for spare in 0...16 {
        do throws(IOError) {
            let hosting = try RunLoop.Hosting(.main)
            print("hosted with", spare > 0)
            hosting.end()
            break
        } catch {
            guard error.errno == .tooManyOpenFiles else { throw error }
            exhausted.free(1)
        }
    }
    RunLoop.main.perform { print("runs itself") }
    RunLoop.main.run(in: .default, until: .distantPast)
}

/// Starts the main loop's first activation with few descriptors available. Later another thread frees them and adds a
/// block to the main queue.
@MainActor func lateMainQueue() throws {
    let thread = try RunLoopThread(name: "frees")
    while !thread.runLoop.isWaiting { sched_yield() }
    let exhausted = ExhaustedDescriptors(sparing: Int(CommandLine.arguments[1]) ?? 0)
    Timer.scheduled(after: .milliseconds(1)) { _ in
        print("timer")
        thread.runLoop.perform {
            exhausted.free()
            DispatchQueue.main.async {
                print("block")
                MainActor.assumeIsolated { RunLoop.main.stop() }
            }
        }
    }
    print(RunLoop.main.run(in: .default))
}

/// Runs the main loop where libdispatch can have no descriptor. What the library says of it goes to standard output.
@MainActor func missingMainQueue() throws {
    guard reactor_test_refuse(CInt(SYS_eventfd2), EMFILE) else {
        return print("Too many open files\nstopped")
    }
    dup2(STDOUT_FILENO, STDERR_FILENO)
    for delay in [1, 2] {
        Timer.scheduled(after: .milliseconds(delay)) { _ in if delay == 2 { RunLoop.main.stop() } }
    }
    print(RunLoop.main.run(in: .default))
}

/// Writes a file where libdispatch can make no worker, for which it waits. Prints what the library says of it.
@MainActor func missingWorker() throws {
    RunLoop.main.run(in: .default, until: .now)
    let pipe = try FileDescriptor.pipe()
    let reader = try RunLoopThread(name: "reader")
    reader.runLoop.perform {
        var bytes = [UInt8](repeating: 0, count: 1000)
        let count = read(pipe.readEnd.rawValue, &bytes, bytes.count)
        write(STDOUT_FILENO, bytes, count)
        _exit(0)
    }
    let path = FilePath("/tmp/reactor-probe-\(getpid())")
    let output = OutputStream(path: path)
    output.open()
    unlink(path.string)
    guard reactor_test_refuse(CInt(SYS_clone3), EAGAIN) else { return print("temporarily unavailable") }
    dup2(pipe.writeEnd.rawValue, STDERR_FILENO)
    RunLoop.main.run {
        try? await output.writeAll("text")
        try? await output.flush()
    }
}

/// Traps where libdispatch would. What the library says of it goes to standard output.
@MainActor func trapOfDispatch() throws {
    dup2(STDOUT_FILENO, STDERR_FILENO)
    for trap in [SIGILL, SIGTRAP] { signal(trap, SIG_DFL) }  // no back trace, which takes long
    DispatchWorkers.explainingTraps { preconditionFailure() }
}

/// Runs blocks of the main queue where the kernel refuses the main loop what it waits with.
@MainActor func unwatchedMainQueue() throws {
    guard reactor_test_refuse(CInt(SYS_timerfd_create), ENOMEM) else { return print("1\n2\nstopped") }
    Timer.scheduled(after: .milliseconds(1)) { _ in
        DispatchQueue.main.async {
            print(1)
            DispatchQueue.main.async {
                print(2)
                MainActor.assumeIsolated { RunLoop.main.stop() }
            }
        }
    }
    print(RunLoop.main.run(in: .default))
}

/// Uses libdispatch for the first time, with few descriptors available: to resolve a name, to flush a file, and to
/// deliver events on a queue.
@MainActor func firstUsesOfDispatch() throws {
    RunLoop.main.run {
        let path = FilePath("/tmp/reactor-probe-\(getpid())")
        let output = OutputStream(path: path)
        output.open()
        defer { unlink(path.string) }
        let exhausted = ExhaustedDescriptors(sparing: Int(CommandLine.arguments[1]) ?? 0)
        defer { exhausted.free() }
        do {
            print(
                try await Resolver.resolve(host: "localhost", port: 7, family: .ipv4, timeout: .seconds(600)))
        } catch { print(error) }
        do {
            try await output.writeAll("text")
            try await output.flush(timeout: .seconds(600))
            print("flushed")
        } catch { print(error) }
        let input = InputStream(data: [1])
        input.setDispatchQueue(DispatchQueue(label: "first"))
        input.open()
        print(input.streamError.map { "\($0)" } ?? "open")
    }
}

/// Writes a file where the kernel has no memory for what libdispatch's first worker needs.
@MainActor func refusedDispatch() throws {
    RunLoop.main.run(in: .default, until: .now)
    RunLoop.main.run {
        let path = FilePath("/tmp/reactor-probe-\(getpid())")
        defer { unlink(path.string) }
        let output = OutputStream(path: path)
        output.open()
        let call = CommandLine.arguments[1] == "epoll" ? SYS_epoll_create1 : SYS_timerfd_create
        guard reactor_test_refuse(CInt(call), ENOMEM) else { return print("flushed") }
        do {
            try await output.writeAll("text")
            try await output.flush(timeout: .seconds(600))
            print("flushed")
        } catch { print(error) }
    }
}

/// Ends the iterations of the main actor's tasks where the kernel refuses libdispatch threads.
@MainActor func iterationsWithoutThreads() throws {
    let datagrams = try RunLoop.main.datagrams(boundTo: .ipv4Loopback(port: 0))
    let signals = try RunLoop.main.signals([.userDefinedOne])
    Task {
        for try await _ in datagrams {}
        print("datagrams")
    }
    let waiting = Task {
        do { for try await _ in signals {} } catch {}
        print("signals")
        RunLoop.main.stop()
    }
    Timer.scheduled(after: .milliseconds(10)) { _ in
        if reactor_test_refuse(CInt(SYS_clone3), EAGAIN) { datagrams.close() }
        Timer.scheduled(after: .milliseconds(10)) { _ in waiting.cancel() }
    }
    RunLoop.main.run(in: .default)
}

/// Prints the numbers of descriptors that the loop opens for its first mode and for a second one.
@MainActor func descriptorsOfModes() throws {
    hold(.custom)
    let before = openDescriptorCount()
    RunLoop.main.run(in: .default, until: .now)
    let withOne = openDescriptorCount()
    RunLoop.main.run(in: .custom, until: .now)
    print(withOne - before, openDescriptorCount() - withOne)
}

/// Runs a mode for the first time, where registering one of its descriptors fails.
@MainActor func refusedDescriptor() throws {
    let (gone, good) = (try FileDescriptor.pipe(), try FileDescriptor.pipe())
    _ = try? good.writeEnd.writeAll([1])
    let refused = DescriptorSource(gone.readEnd, for: .readable) { source, _ in
        print("later", source.descriptor == gone.readEnd)
        source.cancel()
    }
    let served = DescriptorSource(good.readEnd, for: .readable) { source, _ in
        print("served")
        source.cancel()
    }
    for source in [refused, served] { try RunLoop.main.add(source, forMode: .common) }
    let number = gone.readEnd.rawValue
    let copy = dup(number)
    dup2(open("/dev/null", O_RDONLY), number)
    print(RunLoop.main.run(in: .tracking, returnAfterSourceHandled: true))
    dup2(copy, number)
    _ = try? gone.writeEnd.writeAll([1])
    print(RunLoop.main.run(in: .tracking, returnAfterSourceHandled: true))
}
