import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// What holds for file watchers, clock timers and pressure sources alike.
@Suite(.runLoop) struct SystemSourceTests {
    /// A source that has something to report at once; one of pressure has not.
    enum Kind: String, CaseIterable, Codable, Sendable {
        case files, clock, pressure

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
                tree.makeFIFO("file")
                return watcher
            case .clock: return try ClockTimer(.bootTime, at: .zero) { timer, _ in handler(timer) }
            case .pressure:
                return try PressureSource(
                    .memory, of: .full, stalledFor: .milliseconds(1900), within: .seconds(2)
                ) { source, _ in handler(source) }
            }
        }
    }

    @Test(arguments: Kind.available)
    func `a source in a loop is described there, and freed when the loop's thread ends`(
        kind: Kind
    ) async throws {
        let freed = Countdown(1)
        try await onItsOwnThread {
            let canary = AtEnd { freed.count() }
            let loop = RunLoop.current
            do {
                let source = try kind.makeSource(TemporaryTree()) { _ in withExtendedLifetime(canary) {} }
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
    func `a loop whose last source is closed has finished`(kind: Kind) throws {
        let loop = RunLoop.current
        let source = try kind.makeSource(TemporaryTree()) { _ in }
        try loop.add(source, forMode: .default)
        loop.perform(after: .zero) {
            switch source {
            case let source as FileWatcher: source.close()
            case let source as ClockTimer: source.close()
            default: (source as? PressureSource)?.close()
            }
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(!source.isValid)
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
                    for source in sources {
                        (source as? FileWatcher)?.close()
                        (source as? ClockTimer)?.close()
                    }
                })
        }
        // Both watch the folder.
        tree.makeFIFO("other")
        for source in sources { try loop.add(source, forMode: .default) }
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == 1)
    }

    @Test(arguments: Kind.available)
    func `a source that another thread closes traps`(kind: Kind) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [kind] in
            try await onItsOwnThread {
                let source = try kind.makeSource(TemporaryTree()) { _ in }
                try RunLoop.current.add(source, forMode: .default)
                let carrier = Carrier(source)
                try onAThread {
                    switch carrier.value {
                    case let source as FileWatcher: source.close()
                    case let source as ClockTimer: source.close()
                    default: (carrier.value as? PressureSource)?.close()
                    }
                }
            }
        }
        #expect(result.message.contains("must be used"))
    }

    @Test(arguments: [Kind.files, .clock])
    func `without descriptors a source is refused at each step, and leaves none`(kind: Kind) async {
        await #expect(processExitsWith: .success) { [kind] in
            try await onItsOwnThread {
                let (tree, loop) = (TemporaryTree(), RunLoop.current)
                var limit = rlimit(rlim_cur: 128, rlim_max: 128)
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                var fillers: [CInt] = []
                while case let filler = open("/dev/null", O_RDONLY | O_CLOEXEC), filler >= 0 {
                    fillers.append(filler)
                }
                var refusals = 0
                for _ in 0..<16 {
                    do {
                        let source = try kind.makeSource(tree) { _ in }
                        try loop.add(source, forMode: .default)
                        break
                    } catch {
                        #expect((error as? Errno ?? error.errno) == .tooManyOpenFiles)
                        refusals += 1
                    }
                    // As many descriptors are free as before.
                    var free: [CInt] = []
                    while case let number = open("/dev/null", O_RDONLY | O_CLOEXEC), number >= 0 {
                        free.append(number)
                    }
                    #expect(free.count == refusals - 1)
                    for number in free + [fillers.removeLast()] { close(number) }
                }
                #expect((1..<16).contains(refusals))
            }
        }
    }

    // MARK: Tasks

    @Test func `a task receives an event that comes when it is about to wait`() async throws {
        try await withRunLoopThread(name: "races") { thread in
            let (tree, rounds) = (TemporaryTree(), 500)
            for name in ["a", "b"] { tree.makeFIFO(name) }
            let (one, other) = (tree("a").string, tree("b").string)
            let events = try thread.runLoop.fileEvents(at: tree.path)
            let received = Shared(0)
            let producer = try JoinableThread(name: "changes") {
                var generator = SeededGenerator(seed: 1)
                for round in 1...rounds {
                    chmod(one, 0o600)
                    // The second event comes around the time at which the task has taken the first.
                    let end = Deadline.now + .nanoseconds(Int.random(in: 0..<60_000, using: &generator))
                    while Deadline.now < end {}
                    chmod(other, 0o600)
                    received.wait { $0 == 2 * round ? () : nil }
                }
            }
            var count = 0
            for try await _ in events {
                count += 1
                received.value = count
                if count == 2 * rounds { break }
            }
            #expect(count == 2 * rounds)
            producer.join()
        }
    }
}
