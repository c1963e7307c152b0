import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Cancelling, releasing and ending, before and after the answer.
@Suite(.runLoop) struct ResolverLifetimeTests {
    @Test(arguments: ["127.0.0.1", "localhost"], [true, false])
    func `cancelling releases the closure on the loop's thread`(host: String, isElsewhere: Bool) {
        let (home, freedOn) = (UInt(pthread_self()), Shared<UInt>(0))
        let canary = AtEnd { freedOn.value = UInt(pthread_self()) }
        let lookup = Resolver.resolve(host: host, port: 1) { [canary] _ in
            withExtendedLifetime(canary) { _ = Issue.record("answered") }
        }
        _ = consume canary
        #expect(freedOn.value == 0)
        if isElsewhere { onThreads(1) { _ in lookup.cancel() } } else { lookup.cancel() }
        if !isElsewhere { #expect(freedOn.value == home) }
        lookup.cancel()
        #expect(RunLoop.current.poll() == .finished)
        #expect(freedOn.value == home)
    }

    @Test func `a pending answer is not delivered after a block or another completion has cancelled`() {
        let blocked = Resolver.resolve(host: "127.0.0.1", port: 1) { _ in Issue.record("answered") }
        RunLoop.current.perform { blocked.cancel() }
        RunLoop.current.poll()
        var lookups: [Resolver.Lookup] = []
        var calls = 0
        for _ in 0..<2 {
            lookups.append(
                Resolver.resolve(host: "::1", port: 1) { _ in
                    calls += 1
                    for lookup in lookups { lookup.cancel() }
                })
        }
        #expect(runToTheEnd())
        #expect(calls == 1)
    }

    @Test func `each of many lookups is answered at most once, and once unless cancelled`() throws {
        let live = Shared(200)
        var ports = [[UInt16?]](repeating: [], count: 200)
        let lookups = ports.indices.map { index in
            let canary = AtEnd { live.update { $0 -= 1 } }
            let host = index % 3 == 0 ? "127.0.0.1" : "localhost"
            return Resolver.resolve(host: host, port: UInt16(index)) { answer in
                withExtendedLifetime(canary) { ports[index].append(try? answer.get().first?.port) }
            }
        }
        let cancelling = try JoinableThread(name: "cancelling") {
            for index in lookups.indices where index % 2 == 0 { lookups[index].cancel() }
        }
        #expect(runToTheEnd())
        cancelling.join()
        RunLoop.current.poll()
        for (index, answers) in ports.enumerated() {
            #expect(answers == [UInt16(index)] || index % 2 == 0 && answers.isEmpty)
        }
        #expect(live.value == 0)
    }

    @Test func `a completion may cancel its lookup, start another and run the loop`() {
        var calls = 0
        var lookup: Resolver.Lookup?
        func next(_ left: Int) {
            lookup = Resolver.resolve(host: "localhost", port: 1) { _ in
                calls += 1
                lookup?.cancel()
                if left > 0 { next(left - 1) }
                #expect(runToTheEnd())
            }
        }
        next(3)
        #expect(runToTheEnd())
        #expect(calls == 4)
    }

    @Test(arguments: ["127.0.0.1", "localhost"])
    func `the end of the loop's thread releases the closure there`(host: String) throws {
        let threads = Shared<[UInt]>([])
        try onAThread {
            threads.value = [UInt(pthread_self())]
            let canary = AtEnd { threads.update { $0.append(UInt(pthread_self())) } }
            Resolver.resolve(host: host, port: 1) { _ in
                withExtendedLifetime(canary) { _ = Issue.record("answered without a loop") }
            }
        }
        #expect(threads.value.count == 2 && Set(threads.value).count == 1)
    }

    @Test func `a lookup started while the loop's thread ends leaves nothing behind`() throws {
        let freed = Shared(0)
        try onAThread {
            let canary = AtEnd { freed.update { $0 += 1 } }
            let late = AtEnd {
                Resolver.resolve(host: "::1", port: 1) { _ in withExtendedLifetime(canary) {} }
            }
            RunLoop.current.add(RunLoop.Source { withExtendedLifetime(late) {} }, forMode: .default)
        }
        #expect(freed.value == 1)
    }
}
