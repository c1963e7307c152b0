import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What holds for file watchers, clock timers, pressure sources and those of processes alike.
@Suite(.runLoop) struct SystemSourceTests {
    /// A source that has something to report at once; one of pressure or of a process has not.
    enum Kind: String, CaseIterable, Codable, Sendable {
        case files, clock, pressure, process

        static let available = allCases.filter {
            $0 != .pressure || access("/proc/pressure/memory", R_OK | W_OK) == 0
        }

        func makeSource(_ tree: TemporaryTree, _ handler: @escaping (EventSource) -> Void) throws
            -> EventSource
        {
            switch self {
            case .files:
                let watcher = try FileWatcher { watcher, _ in handler(watcher) }
                try watcher.watch(tree.path)
                tree.make("file")
                return watcher
            case .clock:
                return try ClockTimer(.bootTime, at: .init(sinceEpoch: .zero)) { timer, _ in handler(timer) }
            case .pressure:
                return try PressureSource(
                    at: "/proc/pressure/memory", stalledFor: .milliseconds(1900), within: .seconds(2),
                    byAll: true
                ) { source, _ in handler(source) }
            case .process:
                var configuration = ChildProcess.Configuration("sleep", ["1000"])
                configuration.parentDeathSignal = .kill
                return ProcessSource(try ChildProcess.spawn(configuration).process) { source, _ in
                    handler(source)
                }
            }
        }
    }

    @Test(arguments: Kind.available, [true, false])
    func `a source is described in its loop, and freed with the loop's thread, or when it is dropped`(
        kind: Kind, isAdded: Bool
    ) throws {
        let freed = Countdown(1)
        try onAThread {
            let canary = AtEnd { freed.count() }
            let loop = RunLoop.current
            do {
                let source = try kind.makeSource(TemporaryTree()) { _ in withExtendedLifetime(canary) {} }
                guard isAdded else { return }
                try loop.add(source, forMode: .custom)
                #expect(loop.debugDescription.contains("\(source)".prefix(12)))
                #expect(!source.explain().isEmpty)
            }
            // The loop retains it.
            #expect(loop.poll() == .finished)
            #expect(loop.poll(.custom) != .finished)
        }
        freed.wait()
    }

    @Test(arguments: Kind.available)
    func `a loop whose last source is closed has finished, and the handler is released`(kind: Kind) throws {
        let (loop, freed) = (RunLoop.current, Countdown(1))
        let canary = AtEnd { freed.count() }
        let source = try kind.makeSource(TemporaryTree()) { [canary = consume canary] _ in
            withExtendedLifetime(canary) {}
        }
        try loop.add(source, forMode: .default)
        loop.perform(after: .zero) { source.cancel() }
        #expect(loop.run(in: .default) == .finished)
        #expect(!source.isValid)
        freed.wait()
    }

    // A process keeps its descriptor until it has ended.
    @Test(arguments: Kind.available.filter { $0 != .process })
    func `a source that is cancelled or released leaves no descriptor and no thread`(kind: Kind) async {
        await #expect(processExitsWith: .success) { [kind] in
            try onAThread {
                let (tree, loop) = (TemporaryTree(), RunLoop.current)
                // The loop opens its own descriptors with the first source.
                let first = try ClockTimer(.bootTime, at: nil) { _, _ in }
                try loop.add(first, forMode: .default)
                first.cancel()
                let before = ownDescriptors()
                for isAdded in [true, false, true] {
                    let source = try kind.makeSource(tree) { _ in }
                    if isAdded { try loop.add(source, forMode: .default) }
                    if isAdded { source.cancel() }
                }
                waitUntil { ownDescriptors() == before && ownThreads(named: "reactor.pressur") == 0 }
            }
        }
    }

    @Test(arguments: [Kind.files, .clock])
    func `a source that another one closes in the same pass reports nothing`(kind: Kind) throws {
        let (loop, tree) = (RunLoop.current, TemporaryTree())
        var sources: [EventSource] = []
        var calls = 0
        for _ in 0..<2 {
            sources.append(
                try kind.makeSource(tree) { _ in
                    calls += 1
                    for source in sources { source.cancel() }
                })
        }
        // Both watch the folder.
        tree.make("other")
        for source in sources { try loop.add(source, forMode: .default) }
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == 1)
    }

    @Test(arguments: Kind.available)
    func `a source that another thread closes traps`(kind: Kind) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [kind] in
            try onAThread {
                let source = try kind.makeSource(TemporaryTree()) { _ in }
                try RunLoop.current.add(source, forMode: .default)
                let carrier = Carrier(source)
                try onAThread { carrier.value.cancel() }
            }
        }
        #expect(result.message.contains("must be used"))
    }

    @Test(arguments: [Kind.files, .clock])
    func `without descriptors a source is refused at each step, and leaves none`(kind: Kind) async {
        await #expect(processExitsWith: .success) { [kind] in
            try onAThread {
                let (tree, loop) = (TemporaryTree(), RunLoop.current)
                var limit = rlimit(rlim_cur: 1024, rlim_max: 1024)
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                var fillers = openFillers()
                var refusals = 0
                for _ in 0..<16 {
                    do {
                        try loop.add(try kind.makeSource(tree) { _ in }, forMode: .default)
                        break
                    } catch {
                        #expect((error as? IOError)?.errno == .tooManyOpenFiles)
                        refusals += 1
                    }
                    // As many descriptors are free as before.
                    let free = openFillers()
                    #expect(free.count == refusals - 1)
                    for number in free + [fillers.removeLast()] { close(number) }
                }
                #expect((1..<16).contains(refusals))
            }
        }
    }

    @Test func `a task receives an event that comes when it is about to wait`() async throws {
        let (home, tree, rounds) = (LoopThread(), TemporaryTree(), 100)
        tree.make("a", "b")
        let (one, other) = (tree("a").string, tree("b").string)
        let events = try home.loop.fileEvents(at: [tree.path])
        let received = Shared(0)
        let producer = try JoinableThread(name: "changes") {
            var generator = SeededGenerator(seed: 1)
            for round in 1...rounds {
                chmod(one, 0o600)
                // The second event comes around the time at which the task has taken the first.
                (Deadline.now + .nanoseconds(Int.random(in: 0..<60_000, using: &generator))).busyWait()
                chmod(other, 0o600)
                received.wait { $0 == 2 * round ? () : nil }
            }
        }
        for try await _ in events
        where received.update({
            $0 += 1
            return $0
        }) == 2 * rounds { break }
        producer.join()
    }
}

/// Opens descriptors until there are no more.
private func openFillers() -> [CInt] {
    var numbers: [CInt] = []
    while case let number = open("/dev/null", O_RDONLY | O_CLOEXEC), number >= 0 { numbers.append(number) }
    return numbers
}
