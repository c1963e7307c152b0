import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// Whether the kernel has pressure stall information, and this user may ask for its events.
private let isAvailable = access("/proc/pressure/cpu", R_OK | W_OK) == 0

@Suite(.runLoop) struct PressureSourceTests {
    @Test(.enabled(if: isAvailable)) func `pressure on the processor is reported in the source's mode`()
        async throws
    {
        let isOver = Atomic(false)
        try await onItsOwnThread {
            let loop = RunLoop.current
            var calls = 0
            let source = try PressureSource(.cpu, stalledFor: .milliseconds(1), within: .seconds(2)) {
                source, event in
                #expect(event == .stalled)
                calls += 1
                source.close()
            }
            try loop.add(source, forMode: .custom)
            #expect(loop.debugDescription.contains("cpu pressure"))
            // More threads than processors.
            let threads = try (0..<2 * sysconf(CInt(_SC_NPROCESSORS_ONLN))).map { _ in
                try JoinableThread { while !isOver.load(ordering: .relaxed) {} }
            }
            #expect(loop.poll() == .finished)
            #expect(loop.run(in: .custom) == .finished)
            #expect(calls == 1)
            isOver.store(true, ordering: .relaxed)
            for thread in threads { thread.join() }
        }
    }

    @Test(.enabled(if: isAvailable))
    func `a closed source releases its closure, its thread and its descriptors`()
        async
    {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                let loop = RunLoop.current
                let freed = Countdown(4)
                // The loop opens its own descriptors with the first source.
                let timer = try ClockTimer(.bootTime, at: nil) { _, _ in }
                try loop.add(timer, forMode: .default)
                timer.close()
                let before = ownDescriptors()
                for round in 0..<4 {
                    let canary = AtEnd { freed.count() }
                    let source = try PressureSource(
                        .memory, of: .full, stalledFor: .seconds(1), within: .seconds(2)
                    ) { _, _ in withExtendedLifetime(canary) {} }
                    if round.isMultiple(of: 2) {
                        try loop.add(source, forMode: .default)
                        source.close()
                    }
                }
                freed.wait()
                waitUntil { ownDescriptors() == before && ownThreads(named: "reactor.pressur") == 0 }
            }
        }
    }

    @Test(.enabled(if: isAvailable)) func `a window that the kernel refuses is an error that names the file`()
    {
        let error = #expect(throws: IOError.self) {
            try PressureSource(.memory, stalledFor: .seconds(1), within: .seconds(100)) { _, _ in }
        }
        #expect(error?.description == "watch /proc/pressure/memory: Invalid argument")
    }

    @Test(.enabled(if: !isAvailable)) func `without the kernel's support an error names the file`() {
        let error = #expect(throws: IOError.self) {
            try PressureSource(.memory, stalledFor: .seconds(1), within: .seconds(2)) { _, _ in }
        }
        #expect(error?.subject == "/proc/pressure/memory")
    }

    @Test(.enabled(if: isAvailable), arguments: [true, false])
    func `a source whose trigger is gone reports that, and is closed`(isTask: Bool) async {
        await #expect(processExitsWith: .success) { [isTask] in
            let isOver = Atomic(false)
            for _ in 0..<2 * sysconf(CInt(_SC_NPROCESSORS_ONLN)) {
                _ = try JoinableThread { while !isOver.load(ordering: .relaxed) {} }
            }
            let error = IOError(
                .watch, isTask ? "cpu pressure" : "/proc/pressure/cpu", Errno(rawValue: ENODEV))
            if isTask {
                let pressure = try RunLoop.main.pressure(
                    on: .cpu, stalledFor: .milliseconds(1), within: .seconds(2))
                try replaceTrigger()
                let thrown = await thrownError { for try await _ in pressure {} }
                #expect(thrown as? IOError == error)
            } else {
                try await onItsOwnThread {
                    var events: [PressureSource.Event] = []
                    let source = try PressureSource(
                        .cpu, stalledFor: .milliseconds(1), within: .seconds(2)
                    ) { _, event in events.append(event) }
                    try RunLoop.current.add(source, forMode: .default)
                    try replaceTrigger()
                    #expect(RunLoop.current.run(in: .default) == .finished)
                    #expect(events.last == .errorOccurred(error))
                    #expect("\(source)" == "cpu pressure (closed)")
                }
            }
            isOver.store(true, ordering: .relaxed)
        }
    }

    @Test(.enabled(if: isAvailable))
    func `a child of fork(2) that releases a source does not end its parent's`()
        async throws
    {
        #expect(try await probeMainLoop("a parent's pressure source in a child") == ["exit", "0"])
    }

    @Test(.enabled(if: isAvailable)) func `a task that awaits pressure can be cancelled`() async throws {
        try await withRunLoopThread(name: "pressure") { thread in
            let events = try thread.runLoop.pressure(
                on: .memory, of: .full, stalledFor: .seconds(2), within: .seconds(2))
            let task = Task { for try await _ in events {} }
            task.cancel()
            _ = await task.result
        }
    }
}

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
