import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

private let cpu: FilePath = "/proc/pressure/cpu"
/// Whether the kernel has pressure stall information, and this user may ask for its events.
private let isAvailable = access(cpu.string, R_OK | W_OK) == 0

@Suite(.runLoop) struct PressureSourceTests {
    @Test(.enabled(if: isAvailable)) func `pressure on the processor is reported in the source's mode`()
        throws
    {
        let loop = RunLoop.current
        var calls = 0
        let source = try PressureSource(at: cpu, stalledFor: .milliseconds(1), within: .seconds(2)) {
            source, event in
            #expect(event == .stalled)
            calls += 1
            source.cancel()
        }
        try loop.add(source, forMode: .custom)
        try withBusyProcessors {
            #expect(loop.poll() == .finished)
            #expect(loop.run(in: .custom) == .finished)
        }
        #expect(calls == 1)
    }

    @Test func `an error names the file, also without the kernel's support`() {
        let error = #expect(throws: IOError.self) {
            try PressureSource(at: "/proc/pressure/memory", stalledFor: .seconds(1), within: .seconds(100)) {
                _, _ in
            }
        }
        #expect(error?.subject == "/proc/pressure/memory")
        #expect(!isAvailable || error?.errno == .invalidArgument)
    }

    /// The limit is longer while processors are busy, as here.
    @Test(.enabled(if: isAvailable), .runLoop(timeLimit: .seconds(3)), arguments: [true, false])
    func `a source whose trigger is gone reports that, and is closed`(isTask: Bool) async {
        await #expect(processExitsWith: .success) { [isTask] in
            try withBusyProcessors {
                let loop = RunLoop.current
                var errors: [Errno?] = []
                if isTask {
                    errors = try loop.run {
                        let pressure = try loop.pressure(
                            at: cpu, stalledFor: .milliseconds(1), within: .seconds(2))
                        try replaceTrigger()
                        return [await thrownError { for try await _ in pressure {} }?.errno]
                    }
                } else {
                    let source = try PressureSource(
                        at: cpu, stalledFor: .milliseconds(1), within: .seconds(2)
                    ) {
                        if case .errorOccurred(let error) = $1 { errors.append(error.errno) }
                    }
                    try loop.add(source, forMode: .default)
                    try replaceTrigger()
                    #expect(loop.run(in: .default) == .finished)
                    #expect(!source.isValid)
                }
                #expect(errors == [Errno(rawValue: ENODEV)])
            }
        }
    }

    @Test(.enabled(if: isAvailable))
    func `a child of fork(2) that releases a source does not end its parent's`() async throws {
        #expect(try await probeMainLoop("a parent's pressure source in a child") == ["exit", "0"])
    }
}

/// Calls `body` while more threads than there are processors are busy.
private func withBusyProcessors(_ body: () throws -> Void) throws {
    let flag = BusyFlag()
    let threads = try (0..<2 * sysconf(CInt(_SC_NPROCESSORS_ONLN))).map { _ in
        try JoinableThread { while !flag.isOver.load(ordering: .relaxed) {} }
    }
    defer {
        flag.isOver.store(true, ordering: .relaxed)
        for thread in threads { thread.join() }
    }
    try body()
}

private final class BusyFlag: Sendable { let isOver = Atomic(false) }

/// Puts a pipe without a reader in the place of the trigger's file: the kernel reports an error at the next poll(2).
private func replaceTrigger() throws {
    let pipe = try FileDescriptor.pipe()
    try pipe.readEnd.close()
    for name in entries(of: "/proc/self/fd") {
        var target = [CChar](repeating: 0, count: 64)
        guard let number = CInt(name), readlink("/proc/self/fd/\(name)", &target, 63) > 0 else { continue }
        if strcmp(target, "/proc/pressure/cpu") == 0 { dup2(pipe.writeEnd.rawValue, number) }
    }
}
