import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// A port that logs the modes that it is added to and removed from.
private final class LoggingPort: Port, @unchecked Sendable {
    let log = Trace()

    override func schedule(in runLoop: RunLoop, forMode mode: RunLoop.Mode) {
        log("added to \(mode.rawValue)")
    }
    override func remove(from runLoop: RunLoop, forMode mode: RunLoop.Mode) {
        log("removed from \(mode.rawValue)")
    }

    deinit { invalidate() }
}

private final class DeinitPort: Port, @unchecked Sendable {
    private let onDeinit: AtEnd

    init(_ onDeinit: AtEnd) { self.onDeinit = onDeinit }
}

/// The number of invalidation notifications that `body` posts on the calling thread.
private func invalidations(_ body: () throws -> Void) rethrows -> Int {
    let loop = RunLoop.current
    let count = PeakCounter()
    let token = NotificationCenter.default.addObserver(
        forName: Port.didBecomeInvalidNotification, object: nil, queue: nil
    ) { notification in
        if RunLoop.current === loop, notification.object is Port { count.add(1) }
    }
    defer { NotificationCenter.default.removeObserver(token) }
    try body()
    return count.peak
}

@Suite(.runLoop) struct PortTests {
    @Test func `a port keeps a loop running until it is removed`() {
        let (loop, port) = (RunLoop.current, Port())
        loop.add(port, forMode: .default)
        loop.add(port, forMode: .default)
        #expect(loop.run(mode: .default, before: Deadline.distantPast))
        loop.remove(port, forMode: .default)
        #expect(!loop.run(mode: .default, before: Deadline.distantPast))
        loop.add(NSMachPort(), forMode: .common)
        #expect(loop.run(mode: .tracking, before: Deadline.distantPast))
    }

    @Test func `an invalidated port leaves its loops and cannot be added again`() {
        let (loop, port) = (RunLoop.current, Port())
        loop.add(port, forMode: .common)
        port.invalidate()
        #expect(!port.isValid)
        loop.add(port, forMode: .default)
        #expect(!loop.run(mode: .default, before: Deadline.distantPast))
        #expect(!port.send(before: Date(), components: nil, from: nil, reserved: 0))
    }

    @Test func `a loop retains its ports until its thread ends`() async throws {
        let freed = DispatchSemaphore(value: 0)
        try await onItsOwnThread {
            weak var port: Port?
            do {
                let created = Port()
                RunLoop.current.add(created, forMode: .default)
                port = created
            }
            #expect(port != nil)
            RunLoop.current.remove(try #require(port), forMode: .default)
            #expect(port == nil)
            RunLoop.current.add(DeinitPort(AtEnd { freed.signal() }), forMode: .default)
        }
        try await onItsOwnThread { freed.wait() }
    }

    @Test func `scheduling methods are called once for each mode`() {
        let (loop, port) = (RunLoop.current, LoggingPort())
        for mode in [.default, .default, RunLoop.Mode.common] { loop.add(port, forMode: mode) }
        for mode in [.default, .default, RunLoop.Mode("other")] { loop.remove(port, forMode: mode) }
        loop.remove(port, forMode: .common)
        #expect(
            port.log.all == [
                "added to kCFRunLoopDefaultMode", "added to kCFRunLoopCommonModes",
                "removed from kCFRunLoopDefaultMode",
                "removed from kCFRunLoopCommonModes",
            ])
    }

    @Test func `invalidating or releasing a port posts one notification`() {
        #expect(
            invalidations {
                let port = Port()
                port.invalidate()
                port.invalidate()
            } == 1)
        #expect(invalidations { _ = Port() } == 1)
        #expect(invalidations { _ = LoggingPort() } == 1)
        #expect(invalidations { _ = SocketPort(tcpPort: 0) } == 1)
        #expect(Port.didBecomeInvalidNotification == Foundation.Port.didBecomeInvalidNotification)
    }

    @Test func `other threads can add and remove ports`() async throws {
        try await withRunLoop { loop in
            let port = Port()
            DispatchQueue.concurrentPerform(iterations: 8) { index in
                loop.add(port, forMode: RunLoop.Mode("\(index % 2)"))
                loop.remove(port, forMode: RunLoop.Mode("\(index % 2)"))
            }
            for mode in ["0", "1"] { loop.remove(port, forMode: RunLoop.Mode(mode)) }
            let hasRun = loop.performAndWait {
                loop.run(mode: RunLoop.Mode("0"), before: Deadline.distantPast)
            }
            #expect(!hasRun)
        }
    }
}
