import Reactor
import SystemPackage
import Testing

/// Runs `body` on a thread that is not `loop`'s, and waits: a task's thread might be any.
private func elsewhere(_ body: @escaping @Sendable () -> Void) throws {
    try JoinableThread(name: "elsewhere", body).join()
}

@Suite struct MisuseTests {
    @Test func `running another thread's loop in a mode traps`() async {
        await #expect(processExitsWith: .failure) {
            let thread = try RunLoopThread(name: "home")
            thread.runLoop.run(in: .default, until: .distantPast)
        }
    }

    @Test func `adding an observer off the loop's thread traps`() async {
        await #expect(processExitsWith: .failure) {
            let thread = try RunLoopThread(name: "home")
            try elsewhere { thread.runLoop.add(RunLoop.Observer { _, _ in }, forMode: .default) }
        }
    }

    @Test func `invalidating an observer off its loop's thread traps`() async {
        await #expect(processExitsWith: .failure) {
            try elsewhere {
                let observer = RunLoop.Observer { _, _ in }
                RunLoop.current.add(observer, forMode: .default)
                let carried = Carrier(observer)
                try? elsewhere { carried.value.invalidate() }
            }
        }
    }

    @Test func `adding a descriptor off the loop's thread traps`() async {
        await #expect(processExitsWith: .failure) {
            let thread = try RunLoopThread(name: "home")
            try elsewhere {
                let source = DescriptorSource(.standardInput, for: .readable) { _, _ in }
                try? thread.runLoop.add(source, forMode: .default)
            }
        }
    }

    @Test func `cancelling a descriptor off its loop's thread traps`() async {
        await #expect(processExitsWith: .failure) {
            let pipe = try FileDescriptor.pipe()
            try elsewhere {
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
                try? RunLoop.current.add(source, forMode: .default)
                let carried = Carrier(source)
                try? elsewhere { carried.value.cancel() }
            }
        }
    }

    @Test func `a delayed block without Sendable for another thread's loop traps`() async {
        await #expect(processExitsWith: .failure) {
            let thread = try RunLoopThread(name: "home")
            try elsewhere { thread.runLoop.perform(after: .zero) {} }
        }
    }

    @Test func `waiting for a block that runs in no mode traps`() async {
        await #expect(processExitsWith: .failure) {
            let thread = try RunLoopThread(name: "home")
            try elsewhere { thread.runLoop.performAndWait(inModes: []) {} }
        }
    }

    @Test func `a source for a negative descriptor traps`() async {
        await #expect(processExitsWith: .failure) {
            _ = DescriptorSource(FileDescriptor(rawValue: -1), for: .readable) { _, _ in }
        }
    }
}
