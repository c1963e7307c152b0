import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

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

/// A port that overrides scheduling without calling `super`.
private final class UnscheduledPort: Port, @unchecked Sendable {
    override func schedule(in runLoop: RunLoop, forMode mode: RunLoop.Mode) {}
    override func remove(from runLoop: RunLoop, forMode mode: RunLoop.Mode) {}

    deinit { invalidate() }
}

@Suite(.runLoop) struct PortSubclassTests {
    @Test func `a loop releases a port that posts its invalidation itself`() {
        let (loop, freed) = (RunLoop.current, DispatchSemaphore(value: 0))
        do {
            let port = IndependentPort(AtEnd { freed.signal() })
            loop.add(port, forMode: .default)
            loop.add(port, forMode: .tracking)
            port.invalidate()
            loop.add(port, forMode: .default)
        }
        freed.wait()
        #expect(!loop.run(mode: .default, before: Deadline.distantPast))
        #expect(!loop.run(mode: .tracking, before: Deadline.distantPast))
    }

    @Test func `a port's invalidation leaves other ports in the loop`() {
        let (loop, other) = (RunLoop.current, Port())
        loop.add(other, forMode: .default)
        let port = IndependentPort(AtEnd {})
        loop.add(port, forMode: .default)
        port.invalidate()
        #expect(other.isValid && loop.run(mode: .default, before: Deadline.distantPast))
        loop.remove(other, forMode: .default)
    }

    @Test func `schedule(in:forMode:) keeps a loop running until remove(from:forMode:)`() {
        let (loop, port) = (RunLoop.current, Port())
        port.schedule(in: loop, forMode: .default)
        #expect(loop.run(mode: .default, before: Deadline.distantPast))
        port.remove(from: loop, forMode: .default)
        #expect(!loop.run(mode: .default, before: Deadline.distantPast))
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
        port.invalidate()
    }

    @Test func `a subclass that does not call super is added to the loop and removed`() {
        let (loop, port) = (RunLoop.current, UnscheduledPort())
        loop.add(port, forMode: .default)
        #expect(loop.run(mode: .default, before: Deadline.distantPast))
        loop.remove(port, forMode: .default)
        #expect(!loop.run(mode: .default, before: Deadline.distantPast))
    }
}
