import Reactor
import Testing

@Suite struct WriteBufferTests {
    @Test func `a write buffer takes no more than its size beyond what the kernel takes`() async throws {
        try await onItsOwnThread {
            let (peer, other) = try SocketPeer.pair()
            for number in [peer.number, other.rawValue] { SocketPeer.narrow(number) }
            let (input, output) = Stream.connection(descriptor: other, closeWhenDone: true)
            let recorder = Recorder()
            output.writeBufferSize = 1_000
            output.start(recorder)
            RunLoop.current.serve { recorder.count(.hasSpaceAvailable) > 0 }
            #expect(output.writeOnce(pattern(1_000_000)) < 100_000)
            peer.close()
            for stream in [input, output] { stream.close() }
        }
    }
}
