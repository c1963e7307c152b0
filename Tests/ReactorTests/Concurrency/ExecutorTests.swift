import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct ExecutorTests {
    @Test func `an actor lives on a loop`() async throws {
        try await withRunLoopThread(name: "home") { thread in
            let resident = Resident(thread.executor)
            #expect(await resident.isOnLoop)
            #expect(await resident.perform { _ in RunLoop.current.isCurrent } == true)
            #expect(thread.executor.isIsolatingCurrentContext() == false)
        }
    }

    @Test func `a task that prefers a loop stays on its thread after every suspension`() async throws {
        try await withRunLoopThread(name: "preferred") { thread in
            let loop = thread.runLoop
            let places = await Task(executorPreference: thread.executor) {
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
    }

    @Test func `a task with a preference, and actors of its loop, call each other`() async throws {
        try await withRunLoopThread(name: "calls") { thread in
            let (one, other) = (Resident(thread.executor), Resident(thread.executor))
            let count = await Task(executorPreference: thread.executor) {
                await one.count(to: 1_000, with: other)
            }.value
            #expect(count == 1_000)
            #expect(await one.count(to: 1_000, with: other) == 1_000)
        }
    }

    @Test func `actors of two loops call each other`() async throws {
        try await withRunLoopThread(name: "first") { first in
            try await withRunLoopThread(name: "second") { second in
                let (one, other) = (Resident(first.executor), Resident(second.executor))
                #expect(await one.count(to: 1_000, with: other) == 1_000)
            }
        }
    }

    @Test func `a loop has one executor for each set of modes`() {
        let loop = RunLoop.current
        #expect(loop.executor() === loop.executor(inModes: [.common]))
        #expect(
            loop.executor(inModes: [.custom, .default]) === loop.executor(inModes: [.default, .custom]))
        #expect(loop.executor() !== loop.executor(inModes: [.default]))
    }

    @Test func `jobs of one caller run in order`() async throws {
        try await withRunLoopThread(name: "order") { thread in
            let resident = Resident(thread.executor)
            for number in 0..<100 { await resident.note("\(number)") }
            #expect(await resident.notes == (0..<100).map(String.init))
        }
    }

    @Test func `all jobs of many threads run, in isolation`() async throws {
        try await withRunLoopThread(name: "many") { thread in
            let residents = (0..<8).map { _ in Resident(thread.executor) }
            await withTaskGroup { group in
                for index in 0..<1_000 { group.addTask { await residents[index % 8].note("\(index)") } }
            }
            var notes: [String] = []
            for resident in residents { notes += await resident.notes }
            #expect(Set(notes).count == 1_000)
        }
    }

    @Test func `isolation holds in callbacks of the loop`() async throws {
        try await withRunLoopThread(name: "callbacks") { thread in
            let resident = Resident(thread.executor)
            thread.runLoop.perform { resident.assumeIsolated { #expect($0.notes.isEmpty) } }
            let isDone = Shared(false)
            thread.runLoop.add(
                Timer(interval: .zero) { _ in
                    resident.assumeIsolated { #expect($0.notes.isEmpty) }
                    isDone.value = true
                }, forMode: .common)
            await yieldUntil { isDone.value }
        }
    }

    @Test func `assuming isolation on another thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "home")
            thread.executor.preconditionIsolated()
        }
        #expect(result.message.contains("Incorrect actor executor assumption"))
    }

    @Test func `checking isolation on another thread traps and names the loop`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "home")
            thread.executor.checkIsolated()
        }
        #expect(result.message.contains("Code that is isolated to the run loop"))
    }

    @Test func `an executor in no mode traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = RunLoop.main.executor(inModes: [])
        }
        #expect(result.message.contains("An executor in no mode"))
    }
}

/// An actor without an executor of its own.
private actor Anywhere {
    func isOn(_ loop: RunLoop) -> Bool { loop.isCurrent }
}
