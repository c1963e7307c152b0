import Reactor
import ReactorFoundation
import Testing

@Suite struct ShadowingTests {
    @Test func `the names mean the types that work`() {
        #expect(RunLoop.self == Reactor.RunLoop.self)
        #expect(Timer.self == Reactor.Timer.self)
        #expect(Stream.self == Reactor.Stream.self)
        #expect(InputStream.self == Reactor.InputStream.self)
        #expect(OutputStream.self == Reactor.OutputStream.self)
        #expect((any StreamDelegate).self == (any Reactor.StreamDelegate).self)
    }
}
