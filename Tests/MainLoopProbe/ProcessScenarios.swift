import CReactorTestSupport
import Dispatch
import Glibc
import Reactor
import SystemPackage

// MARK: Threads, descriptors and libraries of the process

@MainActor func fromAnotherThread() {
    let isAdded = DispatchSemaphore(value: 0)
    DispatchQueue.global().async {
        print(RunLoop.main.isCurrent, RunLoop.main.run(mode: .default, before: .distantFuture))
        RunLoop.main.add(Timer(interval: .zero) { _ in print("timer") }, forMode: .default)
        RunLoop.main.perform { print("block", RunLoop.current == RunLoop.main) }
        isAdded.signal()
    }
    isAdded.wait()
    RunLoop.main.run(until: .now.advanced(by: .milliseconds(5)))
    print(RunLoop.current === RunLoop.main)
}

/// Runs a loop that cannot open descriptors. Timers and blocks are still served, and a descriptor source once it can be
/// added.
@MainActor func outOfDescriptors() throws {
    let pipe = try FileDescriptor.pipe()
    _ = try? pipe.writeEnd.writeAll([1])
    // libdispatch opens the main queue's descriptor once, and traps if that fails.
    RunLoop.main.run(mode: .default, before: .distantPast)
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    var none = rlimit(rlim_cur: 0, rlim_max: limit.rlim_max)
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &none)
    let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
        print("descriptor")
        source.cancel()
    }
    do { try RunLoop.main.add(source, forMode: .custom) } catch { print(error == .tooManyOpenFiles) }
    Timer.scheduled(after: .milliseconds(2), forMode: .custom) { _ in print("timer") }
    RunLoop.main.perform(inModes: [.custom]) { print("block") }
    print(RunLoop.main.run(in: .custom))
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    try RunLoop.main.add(source, forMode: .custom)
    print(RunLoop.main.run(in: .custom))
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
    let refusable = open("/dev/null", O_RDONLY)
    dup2(refusable, number)
    print(RunLoop.main.run(in: .tracking, returnAfterSourceHandled: true))
    dup2(copy, number)
    _ = try? gone.writeEnd.writeAll([1])
    print(RunLoop.main.run(in: .tracking, returnAfterSourceHandled: true))
}

@MainActor func threadsLeaveNoDescriptors() throws {
    func runOne() throws {
        let thread = try RunLoopThread(name: "short-lived")
        let pipes = [try FileDescriptor.pipe(), try FileDescriptor.pipe()]
        thread.runLoop.performAndWait {
            for pipe in pipes {
                _ = try? pipe.writeEnd.writeAll([1])
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
                try? RunLoop.current.add(source, forMode: .custom)
            }
            // Serves one of the two ready sources.
            RunLoop.current.run(mode: .custom, before: .distantFuture)
        }
        thread.stop()
        for pipe in pipes { for end in [pipe.readEnd, pipe.writeEnd] { try end.close() } }
    }
    try runOne()
    let before = openDescriptors()
    for _ in 0..<20 { try runOne() }
    print(openDescriptors() - before)
}

private func openDescriptors() -> Int { (0..<1024).count { fcntl(CInt($0), F_GETFD) >= 0 } }

/// Prints which shared libraries the process has loaded. The program uses only the module Reactor.
func loadedLibraries() throws {
    let maps = try FileDescriptor.open("/proc/self/maps", .readOnly)
    var text: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while case let count = try buffer.withUnsafeMutableBytes({ try maps.read(into: $0) }), count > 0 {
        text += buffer[..<count]
    }
    for name in ["libFoundation", "libevent", "libdispatch"] {
        print(name, text.firstRange(of: Array(name.utf8)) != nil)
    }
}

/// Waits for a child that has ended and that another process traces, and prints how little processor time that takes.
@MainActor func tracedChild() throws {
    let child = try ChildProcess.spawn(
        .init("cat", standardInput: .stream, standardOutput: .descriptor(.standardOutput)))
    let tracer = try ChildProcess.spawn(
        .init(
            "/proc/self/exe", ["\(child.process.processIdentifier)", "traces a process"],
            standardInput: .stream,
            standardOutput: .stream))
    tracer.standardInput!.open()
    tracer.standardOutput!.open()
    guard !tracer.standardOutput!.read(upTo: 16).isEmpty else { return print("not permitted") }
    child.standardInput!.open()
    child.standardInput!.close()
    let source = ProcessSource(child.process) { _, termination in print(termination.reason) }
    try RunLoop.main.add(source, forMode: .default)
    let before = clock()
    RunLoop.main.run(until: .now + .milliseconds(300))
    print(child.process.wait(until: .now + .milliseconds(300)) == nil)
    print(clock() - before < CLOCKS_PER_SEC / 4)
    tracer.standardInput!.close()
    while source.isValid { RunLoop.main.run(mode: .default, before: .distantFuture) }
}

/// Traces the process whose number it is given, until the standard input ends.
func tracesProcess() {
    guard let process = Int32(CommandLine.arguments[1]), reactor_test_trace(process) else { return }
    print("traces")
    _ = readLine()
}
