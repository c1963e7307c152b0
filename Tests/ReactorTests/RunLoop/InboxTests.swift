#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct InboxTests {
    @Test func `a stop between two passes keeps the loop from sleeping`() {
        let inbox = Inbox(loopName: "run loop")
        _ = inbox.beginActivation(in: .default)
        inbox.stop()
        inbox.beginPass()
        #expect(!inbox.beginSleep(on: 0))
        #expect(inbox.isStopRequested)
    }
}

#endif
