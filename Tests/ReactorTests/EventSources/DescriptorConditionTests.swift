import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What a descriptor is watched for besides bytes and room.
@Suite(.runLoop) struct DescriptorConditionTests {
    private let loop = RunLoop.current
    private let (peer, end): (SocketPeer, SocketPeer)

    init() throws {
        let server = try SocketPeer(listeningAt: .ownLoopback)
        peer = try SocketPeer(connectedTo: .local(of: server.descriptor))
        end = try server.accept()
    }

    /// Sends a byte out of band, and waits until it is there.
    private func sendUrgentByte() throws {
        var byte: UInt8 = 1
        #expect(Glibc.send(peer.descriptor.rawValue, &byte, 1, CInt(MSG_OOB)) == 1)
        var request = pollfd(fd: end.descriptor.rawValue, events: Int16(POLLPRI), revents: 0)
        #expect(poll(&request, 1, -1) == 1)
    }

    private func takeUrgentByte() {
        var byte: UInt8 = 0
        #expect(recv(end.descriptor.rawValue, &byte, 1, CInt(MSG_OOB)) == 1)
    }

    @Test func `the end of a peer's output is told while bytes before it wait`() throws {
        var calls: [Readiness] = []
        let source = DescriptorSource(end.descriptor, for: .hangUp) { calls.append($1) }
        try loop.add(source, forMode: .default)
        peer.send("unread")
        loop.poll()
        #expect(calls.isEmpty)
        peer.shutDown()
        loop.run(in: .default, returnAfterSourceHandled: true)
        loop.poll()
        #expect(calls == [.hangUp, .hangUp])
        try source.setInterest([.readable, .hangUp])
        loop.poll()
        #expect(calls.last == [.readable, .hangUp])
        #expect(end.receive(6) == Array("unread".utf8))
        source.cancel()
    }

    @Test func `urgent bytes have priority, in each mode of a source, until they are taken`() throws {
        var calls: [Readiness] = []
        let source = DescriptorSource(end.descriptor, for: .priority) { calls.append($1) }
        for mode in [RunLoop.Mode.inner, .outer] { try loop.add(source, forMode: mode) }
        for mode in [RunLoop.Mode.inner, .outer] { loop.poll(mode) }
        #expect(calls.isEmpty)
        try sendUrgentByte()
        for mode in [RunLoop.Mode.inner, .outer] { loop.poll(mode) }
        #expect(calls == [.priority, .priority])
        takeUrgentByte()
        for mode in [RunLoop.Mode.inner, .outer] { loop.poll(mode) }
        #expect(calls.count == 2)
        source.cancel()
    }

    @Test func `conditions come and leave with the interest`() throws {
        var calls: [Readiness] = []
        let source = DescriptorSource(end.descriptor, for: .writable) { calls.append($1) }
        try loop.add(source, forMode: .default)
        loop.poll()
        try sendUrgentByte()
        peer.shutDown()
        for interest in [[.writable, .priority], .hangUp, [.hangUp, .priority], .writable, []] as [Readiness]
        {
            try source.setInterest(interest)
            loop.run(in: .default, until: .now, returnAfterSourceHandled: true)
            #expect(calls.last == (interest.isEmpty ? .writable : interest))
        }
        #expect(calls.count == 5)
        source.cancel()
    }

    @Test func `a descriptor that cannot be watched is refused, and the source stays as it was`() throws {
        let file = try FileDescriptor.open("/proc/self/exe", .readOnly)
        let source = DescriptorSource(file, for: []) { _, _ in Issue.record("called") }
        try loop.add(source, forMode: .default)
        for _ in 0..<2 {
            expectErrno(.notPermitted) { try source.setInterest(.priority) }
            #expect(loop.contains(source, forMode: .default))
            loop.poll()
        }
        source.cancel()
        try file.close()
    }

    @Test func `a task waits for the end of a peer that it does not read`() async throws {
        let home = LoopThread()
        let events = home.loop.readiness(of: end.descriptor, for: .hangUp).makeAsyncIterator()
        peer.send("unread")
        peer.shutDown()
        #expect(try await events.next() == .hangUp)
    }

    @Test func `a source of a condition has a description, and says what it waits for`() throws {
        let source = DescriptorSource(end.descriptor, for: [.priority, .hangUp], label: "peer") { _, _ in }
        try loop.add(source, forMode: .default)
        var explanation = ""
        loop.perform(order: 0) { explanation = source.explain() }
        loop.poll()
        #expect(explanation.contains("nothing of this has come: priority hang-up"))
        source.cancel()
    }
}
