#if DEBUG

import Dispatch
import Glibc
import ReactorTesting
import SystemPackage
import Testing

@testable import Reactor

/// Lookups without a loop, and their concurrency.
@Suite(.runLoop) struct ResolverQueueTests {
    private static let query = ResolverQuery(host: "127.0.0.1", service: .port(1))

    @Test func `the width of the queue limits concurrent lookups`() {
        let queue = ResolverQueue(width: 2)
        let counts = Shared((running: 0, most: 0))
        let (met, over) = (Countdown(2), Countdown(6))
        for _ in 0..<6 {
            let request = ResolverRequest(Self.query) { _ in
                counts.update { $0 = ($0.running + 1, max($0.most, $0.running + 1)) }
                met.count()
                met.wait()  // the first two wait for each other, so both are running
                counts.update { $0.running -= 1 }
                over.count()
            }
            queue.add(request)
        }
        over.wait()
        #expect(counts.value.most == 2)
    }

    @Test func `cancelling pending requests releases them, and delays no other`() {
        let queue = ResolverQueue(width: 1)
        let (gate, over, live) = (DispatchSemaphore(value: 0), Countdown(1), Shared(100))
        queue.add(ResolverRequest(Self.query) { _ in gate.wait() })
        let requests = (0..<100).map { _ in
            let canary = AtEnd { live.update { $0 -= 1 } }
            return ResolverRequest(Self.query) { _ in
                withExtendedLifetime(canary) { _ = Issue.record("answered") }
            }
        }
        for request in requests { queue.add(request) }
        onThreads(2) { index in
            for (number, request) in requests.enumerated() where number % 2 == index { request.cancel() }
        }
        #expect(live.value == 0)
        queue.add(ResolverRequest(Self.query) { _ in over.count() })
        gate.signal()
        over.wait()
    }

    @Test(arguments: ["127.0.0.1", "localhost"])
    func `a lookup without a loop is answered once, on another thread`(host: String) throws {
        let inside = Mutex(0)
        let answer = Answer<Resolver.Answer>()
        // An answer within the call would try to lock a second time.
        let request = inside.withLock { _ in
            Resolver.resolveOnAnyThread(host: host, port: 7) { result in
                inside.withLock { $0 += 1 }
                answer.give(result)
            }
        }
        let addresses = try answer.wait().get()
        #expect(addresses.allSatisfy { $0.isLoopback && $0.port == 7 })
        #expect(inside.withLock { $0 } == 1)
        request.cancel()
    }
}

#endif
