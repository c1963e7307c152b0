import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ConnectionFlushTests {
    private func pair(_ options: Connection.Options = .init()) throws -> (Connection, SocketPeer) {
        let (peer, other) = try SocketPeer.pair()
        SocketPeer.narrow(other.rawValue)
        return (Connection(descriptor: other, options: options), peer)
    }

    @Test func `a flush waits for the bytes before it, and keeps no other task from writing`() async throws {
        let (connection, peer) = try pair(.init(writeBufferSize: 1_000_000))
        try await connection.open()
        try connection.send([UInt8](repeating: 1, count: 300_000))
        let flushing = Task.immediate { try await connection.flush() }
        try await connection.write([UInt8](repeating: 2, count: 300_000))
        try connection.send([UInt8](repeating: 3, count: 100_000))
        #expect(peer.receive(300_000) == [UInt8](repeating: 1, count: 300_000))
        try await flushing.value
        // The peer has not read what came behind.
        #expect(connection.writableCount < 1_000_000)
        let rest = Answer<[UInt8]?>()
        let reader = try JoinableThread { rest.give(peer.receiveToEnd()) }
        try await connection.finish()
        reader.join()
        #expect(
            rest.wait() == [UInt8](repeating: 2, count: 300_000) + [UInt8](repeating: 3, count: 100_000))
    }

    @Test(arguments: TaskPlace.allCases)
    func `a flush times out or is cancelled, and the connection continues`(place: TaskPlace) async throws {
        let (connection, peer) = try pair(.init(writeBufferSize: 1_000_000))
        let home = LoopThread()
        try await connection.open()
        try connection.send([UInt8](repeating: 1, count: 300_000))
        for _ in 0..<3 {
            let late = await thrownError {
                try await place.start(on: home.loop) { try await connection.flush(timeout: .milliseconds(2)) }
                    .value
            }
            #expect(late?.errno == .timedOut)
        }
        let flushing = place.start(on: home.loop) { try await connection.flush() }
        for _ in 0..<10 { await Task.yield() }
        flushing.cancel()
        await #expect(throws: CancellationError.self) { try await flushing.value }
        try await connection.write([2])
        #expect(waitingFlushCount(of: connection.streams.output) == 0)
        #expect(peer.receive(300_001).last == 2)
        try await connection.flush()
        connection.close()
    }

    @Test func `a flush comes after the writes that were called before it`() async throws {
        let (connection, peer) = try pair()
        let count = 1_000_000
        let writing = Task { try await connection.write([UInt8](repeating: 1, count: count)) }
        #expect(peer.receive(upTo: 1) == [1])
        let flushing = (0..<3).map { _ in Task.immediate { try await connection.flush() } }
        let behind = Task.immediate { try await connection.write([2]) }
        let late = await thrownError { try await connection.flush(timeout: .milliseconds(1)) }
        #expect(late?.errno == .timedOut)
        #expect(peer.receive(count) == [UInt8](repeating: 1, count: count - 1) + [2])
        try await writing.value
        for flush in flushing { try await flush.value }
        try await behind.value
        connection.close()
    }

    @Test(arguments: [true, false])
    func `the end of a connection ends the flushes that wait`(isClosed: Bool) async throws {
        let (connection, peer) = try pair(.init(writeBufferSize: 1_000_000))
        try await connection.open()
        try connection.send([UInt8](repeating: 1, count: 300_000))
        let flushes = (0..<3).map { _ in Task { try await connection.flush() } }
        for _ in 0..<10 { await Task.yield() }
        if isClosed { connection.close() } else { peer.close() }
        for flush in flushes { await #expect(throws: IOError.self) { try await flush.value } }
    }
}
