import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// A port that logs the modes that it is added to and removed from, and does not call `super`.
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

/// A port that overrides `isValid` and `invalidate()` without calling `super`, as Cocoa code does.
private final class IndependentPort: Port, @unchecked Sendable {
    private let onDeinit: AtEnd
    private var isUsable = true

    init(_ onDeinit: AtEnd) { self.onDeinit = onDeinit }

    override var isValid: Bool { isUsable }

    override func invalidate() {
        guard isUsable else { return }
        isUsable = false
        NotificationCenter.default.post(name: Port.didBecomeInvalidNotification, object: self)
    }
}

/// The number of invalidation notifications that `body` posts on the calling thread.
private func invalidations(_ body: () -> Void) -> Int {
    let loop = RunLoop.current
    let count = Shared(0)
    let token = NotificationCenter.default.addObserver(
        forName: Port.didBecomeInvalidNotification, object: nil, queue: nil
    ) { notification in
        if RunLoop.current === loop, notification.object is Port { count.value += 1 }
    }
    defer { NotificationCenter.default.removeObserver(token) }
    body()
    return count.value
}

@Suite(.runLoop) struct PortTests {
    private let loop = RunLoop.current

    /// Whether `mode` has a port.
    private func hasPort(_ mode: RunLoop.Mode = .default) -> Bool {
        loop.run(mode: mode, before: Deadline.distantPast)
    }

    @Test(arguments: [true, false])
    func `a port keeps a loop running until it is removed`(schedulesItself: Bool) {
        let port = Port()
        for _ in 0..<2 {
            if schedulesItself { port.schedule(in: loop, forMode: .default) }
            if !schedulesItself { loop.add(port, forMode: .default) }
        }
        #expect(hasPort())
        if schedulesItself { port.remove(from: loop, forMode: .default) }
        if !schedulesItself { loop.remove(port, forMode: .default) }
        #expect(!hasPort())
        loop.add(NSMachPort(), forMode: .common)
        #expect(hasPort(.tracking))
    }

    @Test func `an invalidated port leaves its loops and cannot be added again`() {
        let port = Port()
        loop.add(port, forMode: .common)
        port.invalidate()
        loop.add(port, forMode: .default)
        #expect(!port.isValid && !hasPort())
        #expect(!port.send(before: Date(), components: nil, from: nil, reserved: 0))
    }

    @Test func `a loop retains its ports until its thread ends`() throws {
        let log = Trace()
        try onAThread {
            weak var port: Port?
            do {
                let created = Port()
                RunLoop.current.add(created, forMode: .default)
                port = created
            }
            #expect(port != nil)
            RunLoop.current.remove(try #require(port), forMode: .default)
            #expect(port == nil)
            RunLoop.current.add(IndependentPort(AtEnd { log("freed") }), forMode: .default)
        }
        #expect(log.all == ["freed"])
    }

    @Test func `the methods of a subclass that does not call super are called once for each mode`() {
        let port = LoggingPort()
        for mode in [.default, .default, RunLoop.Mode.common] { loop.add(port, forMode: mode) }
        #expect(hasPort())
        for mode in [.default, .default, RunLoop.Mode("other")] { loop.remove(port, forMode: mode) }
        loop.remove(port, forMode: .common)
        #expect(!hasPort())
        let modes = ["kCFRunLoopDefaultMode", "kCFRunLoopCommonModes"]
        #expect(port.log.all == modes.map { "added to " + $0 } + modes.map { "removed from " + $0 })
    }

    @Test func `invalidating or releasing a port posts one notification`() {
        let invalidatesTwice = {
            let port = Port()
            for _ in 0..<2 { port.invalidate() }
        }
        let bodies = [
            invalidatesTwice, { _ = Port() }, { _ = LoggingPort() }, { _ = SocketPort(tcpPort: 0) },
        ]
        #expect(bodies.map(invalidations) == [1, 1, 1, 1])
        #expect(Port.didBecomeInvalidNotification == Foundation.Port.didBecomeInvalidNotification)
    }

    @Test func `other threads can add and remove ports`() throws {
        try withRunLoop { loop in
            let port = Port()
            onThreads(4) { index in
                loop.add(port, forMode: RunLoop.Mode("\(index % 2)"))
                loop.remove(port, forMode: RunLoop.Mode("\(index % 2)"))
            }
            for mode in ["0", "1"] { loop.remove(port, forMode: RunLoop.Mode(mode)) }
            #expect(
                !loop.performAndWait { loop.run(mode: RunLoop.Mode("0"), before: Deadline.distantPast) })
        }
    }

    @Test func `a loop releases a port that posts its invalidation itself, and keeps the others`() {
        let (other, log) = (Port(), Trace())
        loop.add(other, forMode: .default)
        do {
            let port = IndependentPort(AtEnd { log("freed") })
            for mode in [RunLoop.Mode.default, .tracking] { loop.add(port, forMode: mode) }
            port.invalidate()
            loop.add(port, forMode: .default)
        }
        #expect(log.all == ["freed"] && !hasPort(.tracking))
        #expect(other.isValid && hasPort())
    }

    @Test func `schedule(in:forMode:) makes a socket port receive messages`() throws {
        let (mailbox, port) = (Mailbox(), try #require(SocketPort(tcpPort: 0)))
        port.setDelegate(mailbox)
        port.remote.sendTexts("early")
        port.schedule(in: .current, forMode: .default)
        port.remote.schedule(in: .current, forMode: .default)
        port.remote.sendTexts("late")
        mailbox.wait(2)
        #expect(mailbox.texts.sorted() == ["early", "late"])
    }
}
