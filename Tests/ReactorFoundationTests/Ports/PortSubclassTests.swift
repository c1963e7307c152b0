import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

/// A port as Cocoa code has it: valid by its own account, and invalidated without the superclass.
private final class IndependentPort: Port, @unchecked Sendable {
    private let end: AtEnd
    private var isUsable = true

    init(_ end: AtEnd) { self.end = end }

    override var isValid: Bool { isUsable }

    override func invalidate() {
        guard isUsable else { return }
        isUsable = false
        NotificationCenter.default.post(name: Port.didBecomeInvalidNotification, object: self)
    }
}

/// Does not say that it is in a loop, and is so all the same.
private final class SilentPort: Port, @unchecked Sendable {
    override func schedule(in runLoop: RunLoop, forMode mode: RunLoop.Mode) {}
    override func remove(from runLoop: RunLoop, forMode mode: RunLoop.Mode) {}

    deinit { invalidate() }
}

/// What subclasses of ports override, and what clients call themselves.
@Suite struct PortSubclassTests {
    @Test func `a loop releases a port that posts its invalidation itself`() async throws {
        try await onItsOwnThread {
            let (loop, freed) = (RunLoop.current, Happening())
            do {
                let port = IndependentPort(AtEnd { freed.happened() })
                loop.add(port, forMode: .default)
                loop.add(port, forMode: .tracking)
                port.invalidate()
                loop.add(port, forMode: .default)
            }
            freed.wait()
            #expect(!loop.run(mode: .default, before: Deadline.distantPast))
            #expect(!loop.run(mode: .tracking, before: Deadline.distantPast))
        }
    }

    @Test func `another port stays when one posts its invalidation`() async throws {
        try await onItsOwnThread {
            let (loop, other) = (RunLoop.current, Port())
            loop.add(other, forMode: .default)
            let port = IndependentPort(AtEnd {})
            loop.add(port, forMode: .default)
            port.invalidate()
            #expect(other.isValid && loop.run(mode: .default, before: Deadline.distantPast))
            loop.remove(other, forMode: .default)
        }
    }

    @Test func `a port that is scheduled directly keeps its loop running, until it is removed`() async throws
    {
        try await onItsOwnThread {
            let (loop, port) = (RunLoop.current, Port())
            port.schedule(in: loop, forMode: .default)
            #expect(loop.run(mode: .default, before: Deadline.distantPast))
            port.remove(from: loop, forMode: .default)
            #expect(!loop.run(mode: .default, before: Deadline.distantPast))
        }
    }

    @Test func `a socket port that is scheduled directly receives messages`() async throws {
        try await onItsOwnThread {
            let (mailbox, port) = (Mailbox(), try #require(SocketPort(tcpPort: 0)))
            port.setDelegate(mailbox)
            port.remote.say("early")
            port.schedule(in: .current, forMode: .default)
            port.remote.schedule(in: .current, forMode: .default)
            port.remote.say("late")
            mailbox.wait(2)
            #expect(mailbox.texts.sorted() == ["early", "late"])
            port.invalidate()
        }
    }

    @Test func `a subclass need not call super for its port to be in a loop`() async throws {
        try await onItsOwnThread {
            let (loop, port) = (RunLoop.current, SilentPort())
            loop.add(port, forMode: .default)
            #expect(loop.run(mode: .default, before: Deadline.distantPast))
            loop.remove(port, forMode: .default)
            #expect(!loop.run(mode: .default, before: Deadline.distantPast))
        }
    }
}
