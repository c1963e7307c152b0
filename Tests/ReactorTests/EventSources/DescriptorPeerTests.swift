import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What a descriptor source is told of the end of its peer.
@Suite(.runLoop) struct DescriptorPeerTests {
    private let loop = RunLoop.current
    private let (peer, end): (SocketPeer, SocketPeer)

    init() throws {
        let server = try SocketPeer(listeningAt: .ownLoopback)
        peer = try SocketPeer(connectedTo: .local(of: server.descriptor))
        end = try server.accept()
    }

    private func waitForEnd() {
        var request = pollfd(fd: end.descriptor.rawValue, events: 0x2000, revents: 0)
        #expect(poll(&request, 1, -1) == 1)
    }

    @Test func `the end of a peer's output is told while bytes before it wait`() throws {
        var calls: [Readiness] = []
        let source = DescriptorSource(end.descriptor, for: .peerEnded) { calls.append($1) }
        try loop.add(source, forMode: .default)
        peer.send("unread")
        loop.poll()
        #expect(calls.isEmpty)
        peer.shutDown()
        waitForEnd()
        for _ in 0..<2 { loop.poll() }
        #expect(calls == [.peerEnded, .peerEnded])
        try source.setInterest([.readable, .peerEnded])
        loop.poll()
        #expect(calls.last == [.readable, .peerEnded])
        #expect(end.receive(6) == Array("unread".utf8))
        source.cancel()
    }

    @Test func `it is told in each mode of a source, and after a reset`() throws {
        var calls: [Readiness] = []
        let source = DescriptorSource(end.descriptor, for: .peerEnded) { calls.append($1) }
        for mode in [RunLoop.Mode.inner, .outer] { try loop.add(source, forMode: mode) }
        for mode in [RunLoop.Mode.inner, .outer] { loop.poll(mode) }
        #expect(calls.isEmpty)
        peer.reset()
        waitForEnd()
        for mode in [RunLoop.Mode.inner, .outer] { loop.poll(mode) }
        #expect(calls == [.peerEnded, .peerEnded])
        source.cancel()
        for mode in [RunLoop.Mode.inner, .outer] { loop.poll(mode) }
        #expect(calls.count == 2)
    }

    @Test func `it comes and leaves with the interest`() throws {
        var calls: [Readiness] = []
        let source = DescriptorSource(end.descriptor, for: .writable) { calls.append($1) }
        try loop.add(source, forMode: .default)
        loop.poll()
        peer.shutDown()
        waitForEnd()
        for interest in [[.writable, .peerEnded], .peerEnded, [.readable, .peerEnded], .writable]
            as [Readiness]
        {
            try source.setInterest(interest)
            loop.poll()
            #expect(calls.last == interest)
        }
        try source.setInterest([])
        loop.poll()
        #expect(calls.count == 5)
        // What is not wanted keeps no loop awake.
        #expect(loop.passesInAWhile() < 10)
        source.cancel()
    }

    @Test func `another source of the same descriptor is served as before`() throws {
        var calls: [String] = []
        let ends = DescriptorSource(end.descriptor, for: .peerEnded) { source, _ in
            calls.append("end")
            source.cancel()
        }
        let bytes = DescriptorSource(end.descriptor, for: .readable) { _, _ in calls.append("bytes") }
        for source in [ends, bytes] { try loop.add(source, forMode: .default) }
        peer.send("1")
        peer.shutDown()
        waitForEnd()
        for _ in 0..<2 { loop.poll() }
        #expect(calls.sorted() == ["bytes", "bytes", "end"])
        bytes.cancel()
    }

    @Test func `a descriptor that cannot be watched is refused, and the source stays as it was`() throws {
        let file = try FileDescriptor.open("/proc/self/exe", .readOnly)
        let source = DescriptorSource(file, for: [], label: "file") { _, _ in Issue.record("called") }
        try loop.add(source, forMode: .default)
        for interest in [.peerEnded, [.readable, .peerEnded]] as [Readiness] {
            let error = #expect(throws: IOError.self) { try source.setInterest(interest) }
            #expect(error?.errno == .notPermitted && error?.label == "file")
            #expect(loop.contains(source, forMode: .default))
            loop.poll()
        }
        source.cancel()
        try file.close()
    }

    @Test func `a task waits for the end of a peer that it does not read`() async throws {
        let home = LoopThread()
        let events = home.loop.readiness(of: end.descriptor, for: .peerEnded).makeAsyncIterator()
        peer.send("unread")
        peer.shutDown()
        #expect(try await events.next() == .peerEnded)
    }

    @Test func `a source says what it waits for`() throws {
        let source = DescriptorSource(end.descriptor, for: [.readable, .peerEnded]) { _, _ in }
        try loop.add(source, forMode: .default)
        var explanation = ""
        loop.perform(order: 0) { explanation = source.explain() }
        loop.poll()
        #expect(explanation.contains("the descriptor has reported none of: readable ended by its peer"))
        source.cancel()
    }
}
