import Glibc
import SystemPackage
import Testing

@testable import Reactor

@Suite struct SocketStreamDrainTests {
    /// The loop sends what is kept while another thread writes; what that keeps last is nobody's to send but the loop's.
    @Test func `what another thread writes while the loop sends what is kept arrives, to the last byte`()
        async throws
    {
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "drain")
            let fixture = try SocketFixture(.descriptor, isNarrow: true)
            fixture.output.schedule(in: thread.runLoop, forMode: .default)
            fixture.output.open()
            let peer = try fixture.peer
            let arrived = Shared(0)
            let reader = try JoinableThread(name: "reader") {
                while let bytes = peer.receive(upTo: 700), !bytes.isEmpty {
                    arrived.update { $0 += bytes.count }
                }
            }
            var written = 0
            for round in 0..<400 {
                written += fixture.output.write(pattern(9000 + round))
                let target = written
                waitUntil { arrived.value == target }
            }
            fixture.output.close()
            fixture.releaseStreams()
            reader.join()
            thread.stop()
            #expect(arrived.value == written)
        }
    }
}
