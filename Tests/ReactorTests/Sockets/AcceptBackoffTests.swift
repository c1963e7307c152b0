#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct AcceptBackoffTests {
    @Test
    func `delays double from 10 to 320 ms, and start again after a success`() {
        var backoff = AcceptBackoff()
        let lengths = (0..<8).map { _ in backoff.next() }
        #expect(lengths == [10, 20, 40, 80, 160, 320, 320, 320].map { .milliseconds($0) })
        backoff.reset()
        #expect(backoff.next() == .milliseconds(10))
    }

    @Test func `a fault is reported at once, and then at most once a second`() {
        var backoff = AcceptBackoff()
        let start = Deadline(uptimeNanoseconds: 5)
        let reports = [0, 999, 1000, 1999].map { backoff.reports(at: start + .milliseconds($0)) }
        #expect(reports == [true, false, true, false])
    }
}

#endif
