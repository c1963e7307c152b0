#if DEBUG

import Dispatch
import Glibc
import SystemPackage
import ReactorTesting
import Testing

@testable import Reactor

/// Lookups without a loop, and their concurrency.
@Suite(.runLoop) struct ResolverQueueTests {
    private static let query = ResolverQuery(host: "127.0.0.1", service: .port(1))

    @Test func `the width of the queue limits concurrent lookups`() async throws {
        try await onItsOwnThread {
            let queue = ResolverQueue(width: 2)
            let underWay = Shared(0)
            let most = Shared(0)
            let (met, over) = (Countdown(2), Countdown(6))
            for _ in 0..<6 {
                let request = ResolverRequest(Self.query) { _ in
                    let count = underWay.update { count in
                        count += 1
                        return count
                    }
                    most.update { $0 = max($0, count) }
                    met.count()
                    met.wait()  // the first two wait for each other, so both are running
                    underWay.update { $0 -= 1 }
                    over.count()
                }
                queue.add(request)
            }
            over.wait()
            #expect(most.value == 2)
        }
    }

    @Test func `cancelling a pending request releases it and delays no other`() {
        let queue = ResolverQueue(width: 1)
        let (gate, over) = (DispatchSemaphore(value: 0), Countdown(1))
        let freed = Shared(false)
        let canary = AtEnd { freed.value = true }
        queue.add(ResolverRequest(Self.query) { _ in gate.wait() })
        let cancelled = ResolverRequest(Self.query) { [canary] _ in
            withExtendedLifetime(canary) { _ = Issue.record("answered") }
        }
        _ = consume canary
        queue.add(cancelled)
        queue.add(ResolverRequest(Self.query) { _ in over.count() })
        cancelled.cancel()
        #expect(freed.value)
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

    @Test func `cancelled pending requests are not answered`() {
        let queue = ResolverQueue(width: 1)
        let (gate, over) = (DispatchSemaphore(value: 0), Countdown(1))
        queue.add(ResolverRequest(Self.query) { _ in gate.wait() })
        let requests = (0..<100).map { _ in
            ResolverRequest(Self.query) { _ in Issue.record("answered") }
        }
        for request in requests { queue.add(request) }
        onThreads(2) { index in
            for (number, request) in requests.enumerated() where number % 2 == index { request.cancel() }
        }
        queue.add(ResolverRequest(Self.query) { _ in over.count() })
        gate.signal()
        over.wait()
    }

    @Test func `a system error has the text of its errno value`() {
        let error = ResolverError(.systemError, "example.org", errno: .tooManyOpenFiles)
        #expect(error.description == "resolve example.org: \(Errno.tooManyOpenFiles)")
    }
}

#endif
