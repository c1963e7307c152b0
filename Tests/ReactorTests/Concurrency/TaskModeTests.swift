import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct TaskModeTests {
    @Test(arguments: TaskModeCase.all)
    func `a task goes on in the modes of its executor, and waits in others`(_ test: TaskModeCase) async throws
    {
        let events = try await traced { loop, trace in
            for mode in [RunLoop.Mode.default, .tracking, .custom, .outer] { loop.hold(mode) }
            let isDone = Shared(false)
            let clock = loop.clock(inModes: test.executorModes)
            let task = Task(executorPreference: loop.executor(inModes: test.executorModes)) {
                await Task.yield()
                trace(Task.isCancelled ? "cancelled" : "running")
                try? await clock.sleep(for: .microseconds(100))
                trace("slept")
                isDone.value = true
                loop.stop()
            }
            if test.isCancelled { task.cancel() }
            let run = Carrier { (mode: RunLoop.Mode) in
                if !test.isServed(in: mode) { loop.run(in: mode, until: .after(milliseconds: 1)) }
                while test.isServed(in: mode), !isDone.value { loop.run(in: mode) }
            }
            if test.isNested {
                loop.perform(inModes: [.outer]) { run.value(test.loopMode) }
                loop.poll(.outer)
            } else {
                run.value(test.loopMode)
            }
            trace("left")
            run.value(test.executorModes == [.custom] ? .custom : .default)
        }
        let work = [test.isCancelled ? "cancelled" : "running", "slept"]
        #expect(events == (test.isServed(in: test.loopMode) ? work + ["left"] : ["left"] + work))
    }
}

/// A mode that the loop runs in while a task waits for its executor.
struct TaskModeCase: Sendable, CustomTestStringConvertible {
    let loopMode: RunLoop.Mode
    let executorModes: [RunLoop.Mode]
    let isNested: Bool
    let isCancelled: Bool

    static let all: [Self] = {
        let executorModes: [[RunLoop.Mode]] = [[.default], [.common], [.custom], [.default, .custom]]
        var cases: [Self] = []
        for loopMode in [RunLoop.Mode.default, .tracking, .custom] {
            for modes in executorModes {
                for (isNested, isCancelled) in [(false, false), (false, true), (true, false), (true, true)] {
                    cases.append(
                        Self(
                            loopMode: loopMode, executorModes: modes, isNested: isNested,
                            isCancelled: isCancelled))
                }
            }
        }
        return cases
    }()

    func isServed(in mode: RunLoop.Mode) -> Bool {
        executorModes.contains(mode) || (executorModes.contains(.common) && mode != .custom)
    }

    var testDescription: String {
        "\(loopMode) with \(executorModes)\(isNested ? ", nested" : "")\(isCancelled ? ", cancelled" : "")"
    }
}
