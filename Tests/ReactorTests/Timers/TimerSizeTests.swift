#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct TimerSizeTests {
    @Test func `a timer fits into ninety-six bytes, eight of which are the allocator's`() {
        let (header, interval) = (16, MemoryLayout<Int64>.size)
        #expect(header + interval + MemoryLayout<Mutex<Timer.State>>.size <= 88)
    }
}

#endif
