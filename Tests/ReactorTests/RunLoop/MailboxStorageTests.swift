#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct MailboxStorageTests {
    @Test func `storage is used again, and given back after a burst`() {
        let loop = RunLoop.current
        var count = 0
        let mailbox = Mailbox<Int> { _, _ in count += 1 }
        for size in [10, 100_000, 10] {
            for number in 0..<size { mailbox.post(number) }
            loop.poll()
        }
        #expect(count == 100_020)
        #expect(mailbox.keptCapacity <= 2 * BlockQueue.keptCapacity)
        mailbox.close()
    }
}

#endif
