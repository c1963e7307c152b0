import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct ExecutorTests {
    private let home = LoopThread()

    @Test func `a task that prefers a loop stays on its thread after every suspension`() async {
        let loop = home.loop
        let places = await Task(executorPreference: home.executor) {
            var places = [loop.isCurrent]
            await Task.yield()
            places.append(loop.isCurrent)
            try? await Task.sleep(for: .milliseconds(1))
            places.append(loop.isCurrent)
            await withTaskGroup { group in
                group.addTask { loop.isCurrent }
                for await place in group { places.append(place) }
            }
            _ = await MainActor.run { 0 }
            places.append(loop.isCurrent)
            places.append(await Anywhere().isOn(loop))
            return places
        }.value
        #expect(places == [Bool](repeating: true, count: 6))
    }

    @Test
    func `a task that is cancelled while it waits on another loop continues on the one that it prefers`()
        async throws
    {
        let (loop, clock) = (home.loop, LoopThread().loop.clock())
        for round in 0..<50 {
            let (isCancelled, isWaiting) = (round > 0, Countdown(1))
            let task = Task(executorPreference: home.executor) {
                isWaiting.count()
                try? await clock.sleep(for: isCancelled ? .seconds(3600) : .milliseconds(1))
                return loop.isCurrent
            }
            isWaiting.wait()
            // The task may not wait yet.
            for _ in 0..<(round * 20) { await Task.yield() }
            if isCancelled { task.cancel() }
            #expect(await task.value)
        }
    }

    @Test(arguments: [true, false])
    func `actors of one loop, or of two, call each other`(isOneLoop: Bool) async {
        let second = LoopThread()
        let (one, other) = (Noter(home.executor), Noter(isOneLoop ? home.executor : second.executor))
        #expect(await one.count(to: 1_000, with: other) == 1_000)
        let task = Task(executorPreference: home.executor) { await one.count(to: 1_000, with: other) }
        #expect(await task.value == 1_000)
    }

    @Test func `a loop has one executor for each set of modes`() {
        let loop = RunLoop.current
        #expect(loop.executor() === loop.executor(inModes: [.common]))
        #expect(loop.executor(inModes: [.custom, .default]) === loop.executor(inModes: [.default, .custom]))
        #expect(loop.executor() !== loop.executor(inModes: [.default]))
    }

    @Test func `jobs of one caller run in order, and all jobs of many in isolation`() async {
        let noter = Noter(home.executor)
        for number in 0..<100 { await noter.note(number) }
        #expect(await noter.notes == Array(0..<100))
        let noters = (0..<8).map { _ in Noter(home.executor) }
        await withTaskGroup { group in
            for number in 0..<1_000 { group.addTask { await noters[number % 8].note(number) } }
        }
        var notes: [Int] = []
        for noter in noters { notes += await noter.notes }
        #expect(notes.sorted() == Array(0..<1_000))
    }

    @Test func `isolation holds in callbacks of the loop`() {
        let (noter, isDone) = (Noter(home.executor), Countdown(1))
        home.loop.perform { noter.assumeIsolated { #expect($0.notes.isEmpty) } }
        let timer = Timer(interval: .zero) { _ in
            noter.assumeIsolated { #expect($0.notes.isEmpty) }
            isDone.count()
        }
        home.loop.add(timer, forMode: .common)
        isDone.wait()
    }

    enum Misuse: String, CaseIterable, Codable, Sendable {
        case assumedElsewhere, checkedElsewhere, noMode

        func commit() throws {
            let executor = try RunLoopThread(name: "home").executor
            switch self {
            case .assumedElsewhere: executor.preconditionIsolated()
            case .checkedElsewhere: executor.checkIsolated()
            case .noMode: _ = RunLoop.main.executor(inModes: [])
            }
        }

        /// A part of the message.
        var word: String {
            switch self {
            case .assumedElsewhere: "executor assumption"
            case .checkedElsewhere: "'home'"
            case .noMode: "no mode"
            }
        }
    }

    @Test(arguments: Misuse.allCases)
    func `an executor that is used elsewhere, or in no mode, traps`(misuse: Misuse) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [misuse] in
            try misuse.commit()
        }
        #expect(result.message.contains(misuse.word))
    }
}

/// An actor that notes numbers.
private actor Noter {
    private let executor: RunLoop.Executor
    private(set) var notes: [Int] = []
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(_ executor: RunLoop.Executor) { self.executor = executor }

    func note(_ number: Int) { notes.append(number) }

    /// The number that `call` arrives at, one actor call a step.
    func count(to limit: Int, with other: Noter) async -> Int {
        limit == 0 ? 0 : await 1 + other.count(to: limit - 1, with: self)
    }
}

/// An actor without an executor of its own.
private actor Anywhere {
    func isOn(_ loop: RunLoop) -> Bool { loop.isCurrent }
}
