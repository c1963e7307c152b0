import CReactorTestSupport
import Dispatch
import Glibc
import Reactor
import SystemPackage

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

/// Prints which shared libraries the process has loaded. The program uses only the module Reactor.
func loadedLibraries() throws {
    let maps = try FileDescriptor.open("/proc/self/maps", .readOnly)
    let text = allBytes(of: maps.rawValue)
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
    RunLoop.main.run(until: .now + .milliseconds(100))
    print(child.process.wait(until: .now + .milliseconds(100)) == nil)
    print(clock() - before < CLOCKS_PER_SEC / 12)
    tracer.standardInput!.close()
    while source.isValid { RunLoop.main.run(mode: .default, before: .distantFuture) }
}

/// Traces the process whose number it is given, until the standard input ends.
func tracesProcess() {
    guard let process = Int32(CommandLine.arguments[1]), reactor_test_trace(process) else { return }
    print("traces")
    _ = readLine()
}

/// Reads a descriptor to its end.
func allBytes(of number: CInt) -> [UInt8] {
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while case let count = read(number, &buffer, buffer.count), count > 0 { bytes += buffer[..<count] }
    return bytes
}

/// Unblocks the signals that are blocked in the process that started this one, as on Dispatch's threads.
func unblockSignals() {
    var none = sigset_t()
    sigemptyset(&none)
    pthread_sigmask(SIG_SETMASK, &none, nil)
}

/// Releases a source of the parent in a child, and prints what the parent's monitor has been sent.
func pressureSourceInChild() throws {
    var source: PressureSource? = try PressureSource(
        at: "/proc/pressure/memory", stalledFor: .seconds(2), within: .seconds(2), byAll: true
    ) { _, _ in }
    print(ForkedChild.ending { source = nil })
    var sum = 0
    for number in 0..<64 {
        guard let file = try? FileDescriptor.open("/proc/self/fdinfo/\(number)", .readOnly) else { continue }
        let words = String(decoding: allBytes(of: file.rawValue), as: UTF8.self).split {
            " \t\n".contains($0)
        }
        try file.close()
        if let index = words.firstIndex(of: "eventfd-count:") { sum += Int(words[index + 1], radix: 16) ?? 1 }
    }
    print(sum)
    source?.cancel()
}

/// Takes the sockets of the service manager, and accepts a connection at the first.
func takesSocketsOfManager() throws {
    let sockets = try ServiceManager.takeSockets()
    for socket in sockets {
        let number = socket.descriptor.rawValue
        print(socket.name, number, fcntl(number, F_GETFD) & FD_CLOEXEC != 0)
    }
    print("again", try ServiceManager.takeSockets().count)
    guard let first = sockets.first else { return }
    let listener = try Listener(descriptor: first.descriptor) { listener, _ in
        print("accepted")
        listener.close()
        RunLoop.main.stop()
    }
    try RunLoop.main.add(listener, forMode: .default)
    RunLoop.main.run(in: .default)
}
