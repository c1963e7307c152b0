import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

/// Writes down which modes it gets into and out of.
private final class ListeningPort: Port, @unchecked Sendable {
    let log = Trace()

    override func schedule(in runLoop: RunLoop, forMode mode: RunLoop.Mode) { log("in \(mode.rawValue)") }
    override func remove(from runLoop: RunLoop, forMode mode: RunLoop.Mode) {
        log("out \(mode.rawValue)")
    }

    deinit { invalidate() }
}

private final class EndingPort: Port, @unchecked Sendable {
    private let end: AtEnd

    init(_ end: AtEnd) { self.end = end }
}

/// The notifications of invalid ports that come from `body`'s thread.
private func invalidations(_ body: () throws -> Void) rethrows -> Int {
    let loop = RunLoop.current
    let count = Count()
    let token = NotificationCenter.default.addObserver(
        forName: Port.didBecomeInvalidNotification, object: nil, queue: nil
    ) { notification in
        if RunLoop.current === loop, notification.object is Port { count.add(1) }
    }
    defer { NotificationCenter.default.removeObserver(token) }
    try body()
    return count.highest
}

@Suite struct PortTests {
    @Test func `a port keeps a loop running until it is removed`() async throws {
        try await onItsOwnThread {
            let (loop, port) = (RunLoop.current, Port())
            loop.add(port, forMode: .default)
            loop.add(port, forMode: .default)
            #expect(loop.run(mode: .default, before: Deadline.distantPast))
            loop.remove(port, forMode: .default)
            #expect(!loop.run(mode: .default, before: Deadline.distantPast))
            loop.add(NSMachPort(), forMode: .common)
            #expect(loop.run(mode: .tracking, before: Deadline.distantPast))
        }
    }

    @Test func `a port that is invalidated leaves its loops, and joins no other`() async throws {
        try await onItsOwnThread {
            let (loop, port) = (RunLoop.current, Port())
            loop.add(port, forMode: .common)
            port.invalidate()
            #expect(!port.isValid)
            loop.add(port, forMode: .default)
            #expect(!loop.run(mode: .default, before: Deadline.distantPast))
            #expect(!port.send(before: Date(), components: nil, from: nil, reserved: 0))
        }
    }

    @Test func `a loop keeps its ports alive, to its thread's end`() async throws {
        let freed = Happening()
        try await onItsOwnThread {
            weak var port: Port?
            do {
                let made = Port()
                RunLoop.current.add(made, forMode: .default)
                port = made
            }
            #expect(port != nil)
            RunLoop.current.remove(try #require(port), forMode: .default)
            #expect(port == nil)
            RunLoop.current.add(EndingPort(AtEnd { freed.happened() }), forMode: .default)
        }
        try await onItsOwnThread { freed.wait() }
    }

    @Test func `a subclass is told of each mode once, in and out`() async throws {
        try await onItsOwnThread {
            let (loop, port) = (RunLoop.current, ListeningPort())
            for mode in [.default, .default, RunLoop.Mode.common] { loop.add(port, forMode: mode) }
            for mode in [.default, .default, RunLoop.Mode("other")] { loop.remove(port, forMode: mode) }
            loop.remove(port, forMode: .common)
            #expect(
                port.log.all == [
                    "in kCFRunLoopDefaultMode", "in kCFRunLoopCommonModes", "out kCFRunLoopDefaultMode",
                    "out kCFRunLoopCommonModes",
                ])
        }
    }

    @Test func `invalidation is told of once, by whoever invalidates or lets go`() async throws {
        try await onItsOwnThread {
            #expect(
                invalidations {
                    let port = Port()
                    port.invalidate()
                    port.invalidate()
                } == 1)
            #expect(invalidations { _ = Port() } == 1)
            #expect(invalidations { _ = ListeningPort() } == 1)
            #expect(invalidations { _ = SocketPort(tcpPort: 0) } == 1)
            #expect(Port.didBecomeInvalidNotification == Foundation.Port.didBecomeInvalidNotification)
        }
    }

    @Test func `ports are added and removed from other threads`() async throws {
        try await withRunLoop { loop in
            let port = Port()
            DispatchQueue.concurrentPerform(iterations: 8) { index in
                loop.add(port, forMode: RunLoop.Mode("\(index % 2)"))
                loop.remove(port, forMode: RunLoop.Mode("\(index % 2)"))
            }
            for mode in ["0", "1"] { loop.remove(port, forMode: RunLoop.Mode(mode)) }
            let mayRun = loop.performAndWait {
                loop.run(mode: RunLoop.Mode("0"), before: Deadline.distantPast)
            }
            #expect(!mayRun)
        }
    }
}
