import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// A whole server: connections are read, processed on a concurrent queue, and answered on the loop.
@Suite(.runLoop) struct RequestServerTests {
    private static let clients = 50
    /// So many clients read nothing before all others have their answers.
    private static let slow = 3

    /// Numbered lines of random lengths, different for each client.
    private static func requests(of client: Int) -> [[UInt8]] {
        var generator = SeededGenerator(seed: UInt64(client))
        // A slow client's requests do not fit into the buffers between it and the server.
        return (0..<(client < slow ? 2000 : 150)).map { number in
            let letter = UInt8(97 + (number + client) % 26)
            let length = Int.random(in: 0...1500, using: &generator)
            return Array("\(number) ".utf8) + Array(repeating: letter, count: length) + [10]
        }
    }

    @Test(arguments: RequestServer.Kind.allCases)
    func `answers come in order on every connection, and memory stays bounded`(
        kind: RequestServer.Kind
    ) throws {
        let server = RequestServer(kind)
        let address = try server.listen(for: Self.clients)
        let clients = try (0..<Self.clients).map { _ in try SocketPeer(connectedTo: address) }
        let others = Countdown(Self.clients - Self.slow)
        let sent = Shared(Array(repeating: 0, count: Self.clients))
        let right = Shared(0)
        let crowd = try JoinableThread(name: "crowd") {
            onThreads(2 * Self.clients) { index in
                let number = index / 2
                if index % 2 == 0 {
                    send(Self.requests(of: number), clients[number]) { sent.update { $0[number] += 1 } }
                } else {
                    if number < Self.slow {
                        others.wait()
                        #expect(sent.value[number] < 2000)
                    }
                    let expected = Self.requests(of: number).flatMap { Array("ok ".utf8) + $0 }
                    if received(clients[number]) == expected { right.update { $0 += 1 } }
                    if number >= Self.slow { others.count() }
                }
            }
        }
        #expect(runToTheEnd())
        crowd.join()
        #expect(right.value == Self.clients)
        #expect(server.endings == Array(repeating: "finished", count: Self.clients))
        #expect((4096...4 * 4096).contains(server.mostInUse.value))
        #expect(server.limits.budget?.inUse == 0)
        // A slow client's answers are more than a million bytes.
        #expect((1...100_000).contains(server.mostPending))
    }
}

private func send(_ requests: [[UInt8]], _ client: SocketPeer, each: () -> Void) {
    for request in requests {
        guard client.send(request) else { return }
        each()
    }
    client.shutDown()
}

private func received(_ client: SocketPeer) -> [UInt8] {
    var bytes: [UInt8] = []
    withUnsafeTemporaryAllocation(byteCount: 3000, alignment: 1) { buffer in
        while let count = try? client.descriptor.read(into: buffer), count > 0 {
            bytes += buffer.prefix(count)
        }
    }
    return bytes
}
