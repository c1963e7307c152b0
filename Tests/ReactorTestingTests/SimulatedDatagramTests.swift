import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SimulatedDatagramTests {
    @Test(arguments: [
        (SocketAddress.ipv6Loopback(port: 53), SocketAddress.ipv4Any(port: 53), true),
        (.ipv4Any(port: 53), .ipv6Loopback(port: 53), true),
        (.ipv6Any(port: 53), .ipv4Loopback(port: 53), false),
        (.ipv4Loopback(port: 53), .ipv4Any(port: 53), false), (.ipv4Any(port: 53), .ipv4Any(port: 54), true),
    ])
    func `two sockets may have addresses that do not overlap`(
        first: SocketAddress, second: SocketAddress, areAllowed: Bool
    ) throws {
        func bind(_ address: SocketAddress) throws -> DatagramSocket {
            try DatagramSocket(boundTo: address) { _, _, _ in
            } events: { _, _ in
            }
        }
        try withSimulation { _ in
            let socket = try bind(first)
            do {
                try bind(second).close()
                #expect(areAllowed)
            } catch {
                #expect(!areAllowed && error as? IOError != nil)
            }
            socket.close()
        }
    }

    @Test func `sockets that are closed keep no descriptors`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                try withSimulation { world in
                    let answerer = try DatagramSocket(boundTo: .ipv4Any(port: 53)) {
                        socket, bytes, metadata in
                        _ = try? socket.send(bytes, to: metadata.sender)
                    } events: { _, _ in
                    }
                    try RunLoop.current.add(answerer, forMode: .default)
                    func ask(times count: Int) throws -> Int {
                        var answerCount = 0
                        for _ in 0..<count {
                            let socket = try DatagramSocket(connectedTo: .ipv4Loopback(port: 53)) { _, _, _ in
                                answerCount += 1
                            } events: { _, _ in
                            }
                            try RunLoop.current.add(socket, forMode: .default)
                            _ = try socket.send("question")
                            world.time.advance(by: .milliseconds(1))
                            socket.close()
                        }
                        return answerCount
                    }
                    #expect(try ask(times: 1) == 1)
                    let count = openDescriptorCount()
                    #expect(try ask(times: 20) == 20 && openDescriptorCount() <= count + 1)
                    answerer.close()
                }
            }
        }
    }

    @Test func `datagrams are answered to their sender`() throws {
        try withSimulation { world in
            let host = world.host("dns.example", "10.0.1.1")
            let server = try host.run {
                try DatagramSocket(boundTo: .ipv4Any(port: 53)) { socket, bytes, metadata in
                    _ = try? socket.send(bytes, to: metadata.sender)
                } events: { _, _ in
                }
            }
            var answers: [(String, SocketAddress?)] = []
            let client = try DatagramSocket(connectedTo: .ipv4(0x0a00_0101, port: 53)) { _, bytes, metadata in
                answers.append((String(decoding: Array(copying: bytes), as: UTF8.self), metadata.sender))
            } events: { _, _ in
            }
            for socket in [server, client] { try RunLoop.current.add(socket, forMode: .default) }
            for number in 0..<100 { #expect(try client.send("question \(number)")) }
            world.time.advance(by: .seconds(1))
            #expect(answers.map(\.0) == (0..<100).map { "question \($0)" })
            #expect(answers.allSatisfy { $0.1 == SocketAddress("10.0.1.1:53") })
            #expect(client.peerAddress == SocketAddress("10.0.1.1:53"))
            for socket in [server, client] { socket.close() }
        }
    }

    @Test func `datagrams are lost, duplicated and reordered`() throws {
        try withSimulation(seed: 3) { world in
            world.link.latency = .milliseconds(1) ... .milliseconds(9)
            (world.link.loss, world.link.duplication) = (0.1, 0.1)
            let host = world.host("server")
            var numbers: [Int] = []
            let server = try host.run {
                try DatagramSocket(boundTo: .ipv4Any(port: 9)) { _, bytes, _ in
                    numbers.append(Int(String(decoding: Array(copying: bytes), as: UTF8.self))!)
                } events: { _, _ in
                }
            }
            try RunLoop.current.add(server, forMode: .default)
            let client = try DatagramSocket(boundTo: .ipv4Any(port: 0)) { _, _, _ in
            } events: { _, _ in
            }
            for number in 0..<100 { _ = try client.send("\(number)", to: host.addresses[0].with(port: 9)) }
            world.time.runUntilIdle()
            let kinds = Set(numbers)
            #expect((70..<100).contains(kinds.count) && numbers.count > kinds.count)
            #expect(numbers != numbers.sorted())
            for socket in [server, client] { socket.close() }
        }
    }
}

extension Array where Element == UInt8 {
    fileprivate init(copying bytes: RawSpan) {
        self = bytes.withUnsafeBytes { Array($0) }
    }
}
