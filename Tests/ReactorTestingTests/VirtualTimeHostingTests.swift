import Glibc
import Reactor
import ReactorTesting
import Testing

/// A loop with virtual time that another event loop runs: here poll(2).
@Suite(.runLoop) struct VirtualTimeHostingTests {
    private func run(_ hosting: RunLoop.Hosting, while condition: () -> Bool) {
        var request = pollfd(fd: hosting.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
        while condition() {
            poll(&request, 1, -1)
            hosting.dispatch()
        }
    }

    @Test func `a hosted loop's timers fire at their dates`() throws {
        try withVirtualTime { time in
            let (start, hosting) = (time.now, try RunLoop.Hosting(.current))
            var dates: [Duration] = []
            for hours in [2, 1] {
                Timer.scheduled(after: .seconds(3600 * hours)) { _ in dates.append(start.duration(to: .now)) }
            }
            hosting.dispatch()
            run(hosting) { dates.count < 2 }
            #expect(dates == [.seconds(3600), .seconds(7200)])
            hosting.end()
        }
    }

    @Test func `the clock stands still while a hosted loop's handlers run`() throws {
        try withVirtualTime { time in
            let (hold, hosting) = (time.hold(), try RunLoop.Hosting(.current))
            var dates: Set<Deadline> = []
            Timer.scheduled(after: .milliseconds(1)) { _ in for _ in 0..<1000 { dates.insert(.now) } }
            hosting.dispatch()
            run(hosting) { dates.isEmpty }
            #expect(dates.count == 1)
            hosting.end()
            hold.end()
        }
    }
}
