import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Runs `body` on a thread that is not `loop`'s, and waits: a task's thread might be any.
private func elsewhere(_ body: @escaping @Sendable () -> Void) throws {
    try JoinableThread(name: "elsewhere", body).join()
}

@Suite(.runLoop) struct MisuseTests {
    @Test func `running another thread's loop in a mode traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "home")
            try elsewhere { thread.runLoop.run(in: .default, until: .distantPast) }
        }
        #expect(result.message.contains("must be called on the loop's own thread"))
    }

    @Test func `adding an observer off the loop's thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "home")
            try elsewhere { thread.runLoop.add(RunLoop.Observer { _, _ in }, forMode: .default) }
        }
        #expect(result.message.contains("RunLoop.add(_:forMode:) must be called on the loop's own thread"))
        #expect(result.message.contains("of thread 'home'"))
        #expect(result.message.contains("thread 'elsewhere'"))
    }

    @Test func `invalidating an observer off its loop's thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try elsewhere {
                let observer = RunLoop.Observer { _, _ in }
                RunLoop.current.add(observer, forMode: .default)
                let carried = Carrier(observer)
                try? elsewhere { carried.value.invalidate() }
            }
        }
        #expect(result.message.contains("use it on the loop's own thread"))
    }

    @Test func `cancelling a descriptor off its loop's thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let pipe = try FileDescriptor.pipe()
            try elsewhere {
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
                try? RunLoop.current.add(source, forMode: .default)
                let carried = Carrier(source)
                try? elsewhere { carried.value.cancel() }
            }
        }
        #expect(result.message.contains("DescriptorSource must be used on the loop's own thread"))
    }

    private static let questions: [String: @Sendable (DescriptorSource) -> Void] = [
        "isValid": { _ = $0.isValid },
        "interest": { _ = $0.interest },
        "description": { _ = $0.description },
        "add": { try? RunLoop.current.add($0, forMode: .default) },
        "remove": { RunLoop.current.remove($0, forMode: .default) },
        "contains": { _ = RunLoop.current.contains($0, forMode: .default) },
    ]

    @Test(arguments: ["isValid", "interest", "description", "add", "remove", "contains"])
    func `using a descriptor source off its loop's thread traps`(name: String) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [name = name as String] in
            let pipe = try FileDescriptor.pipe()
            try elsewhere {
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
                try? RunLoop.current.add(source, forMode: .default)
                let carried = Carrier(source)
                try? elsewhere { Self.questions[name]?(carried.value) }
            }
        }
        #expect(result.message.contains("DescriptorSource must be used on the loop's own thread"))
    }

    @Test(arguments: ["isValid", "add"])
    func `using an observer off its loop's thread traps`(name: String) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [name = name as String] in
            try elsewhere {
                let observer = RunLoop.Observer { _, _ in }
                RunLoop.current.add(observer, forMode: .default)
                let carried = Carrier(observer)
                try? elsewhere {
                    if name == "add" {
                        RunLoop.current.add(carried.value, forMode: .default)
                    } else {
                        _ = carried.value.isValid
                    }
                }
            }
        }
        #expect(result.message.contains("Observer must be used on the loop's own thread"))
    }

    @Test func `waiting for a block that runs in no mode traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "home")
            try elsewhere { thread.runLoop.performAndWait(inModes: []) {} }
        }
        #expect(result.message.contains("performAndWait needs a mode"))
    }

    @Test func `waiting for a block of a loop that has ended traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let ended = Answer<RunLoop>()
            try elsewhere { ended.give(.current) }
            try elsewhere { ended.wait().performAndWait {} }
        }
        #expect(result.message.contains("loop's thread has ended"))
    }

    @Test(arguments: [[RunLoop.Mode.custom], [.custom, .tracking]])
    func `waiting for a block of a loop that ends without running it traps`(modes: [RunLoop.Mode]) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [names = modes.map(\.rawValue) as [String]] in
            let ending = Answer<RunLoop>()
            _ = try JoinableThread(name: "ending") {
                let loop = RunLoop.current
                loop.hold(.default)
                loop.observe(.afterWaiting) { _ in loop.stop() }
                ending.give(loop)
                loop.run(in: .default)
            }
            try elsewhere {
                ending.wait().untilAsleep()
                ending.wait().performAndWait(inModes: names.map { RunLoop.Mode(rawValue: $0) }) {}
            }
        }
        #expect(result.message.contains("loop's thread has ended"))
    }

    @Test(arguments: ["eventfd", "timerfd"])
    func `a loop whose descriptor other code has closed traps`(kind: String) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [kind = kind as String] in
            alarm(10)
            try elsewhere {
                let loop = RunLoop.current
                loop.hold(.default)
                let before = Set(descriptors(of: kind))
                loop.poll()
                for number in descriptors(of: kind) where !before.contains(number) { close(number) }
                if kind == "timerfd" { Timer.scheduled(after: .milliseconds(1)) { _ in } }
                _ = try? JoinableThread(name: "waking") {
                    loop.untilAsleep()
                    loop.wakeUp()
                }
                loop.run(in: .default, until: .minutesAway)
            }
        }
        #expect(result.message.contains("other code has probably closed"), "\(result.message)")
    }
}

/// The process's descriptors of a kind that has no file, such as eventfd(2).
private func descriptors(of kind: String) -> [CInt] {
    (3..<256).filter { number in
        var target = [CChar](repeating: 0, count: 256)
        readlink("/proc/self/fd/\(number)", &target, 255)
        return strstr(target, "[\(kind)]") != nil
    }
}
