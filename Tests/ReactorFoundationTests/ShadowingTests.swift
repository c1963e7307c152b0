import Reactor
import ReactorFoundation
import ReactorTesting
import Testing

@Suite(.runLoop) struct ShadowingTests {
    @Test func `the names denote Reactor's types`() {
        #expect(RunLoop.self == Reactor.RunLoop.self)
        #expect(Timer.self == Reactor.Timer.self)
        #expect(Stream.self == Reactor.Stream.self)
        #expect(InputStream.self == Reactor.InputStream.self)
        #expect(OutputStream.self == Reactor.OutputStream.self)
        #expect((any StreamDelegate).self == (any Reactor.StreamDelegate).self)
    }

    @Test func `ports and notification queues are not Foundation's`() {
        #expect(ObjectIdentifier(Port.self) != ObjectIdentifier(Foundation.Port.self))
        #expect(ObjectIdentifier(SocketPort.self) != ObjectIdentifier(Foundation.SocketPort.self))
        #expect(ObjectIdentifier(PortMessage.self) != ObjectIdentifier(Foundation.PortMessage.self))
        #expect(
            ObjectIdentifier(NotificationQueue.self) != ObjectIdentifier(Foundation.NotificationQueue.self))
        #expect(ObjectIdentifier(Operation.self) == ObjectIdentifier(Foundation.Operation.self))
    }
}
