import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What the two ends of a connection send: byte number i is the same in both directions.
private func pattern(_ range: Range<Int>) -> [UInt8] {
    range.map { UInt8(truncatingIfNeeded: $0 &* 31 ^ $0 >> 8) }
}

/// An end of a connection that does at random what a delegate may do, and checks what is promised to it.
private final class Peer: ConnectionDelegate {
    let connection: Connection
    private(set) var sentCount = 0
    private(set) var receivedCount = 0
    private(set) var error: (any Error)?
    private(set) var hasEnded = false
    private(set) var hasOpened = false
    /// Whether this end has called `close` or `reset`.
    private(set) var isClosed = false
    private(set) var hasReset = false
    private var isReadingPaused = false
    private var isFinishing = false
    private var isInCallback = false
    private var generator: SeededGenerator
    private var timer: Timer?

    init(_ connection: Connection, seed: UInt64) {
        self.connection = connection
        generator = SeededGenerator(seed: seed)
        connection.open(delegate: self)
        timer = Timer.scheduled(every: .milliseconds(random(5...100)), forMode: .common) { [unowned self] _ in
            act()
        }
    }

    deinit { timer?.invalidate() }

    private func random(_ range: ClosedRange<Int>) -> Int { .random(in: range, using: &generator) }

    /// Receives from now on, and sends nothing more.
    func finish() {
        timer?.invalidate()
        (isReadingPaused, isFinishing) = (false, true)
        guard !isClosed, error == nil else { return }
        receive()
        try? connection.sendEnd()
    }

    private func act() {
        guard hasOpened, !isClosed, error == nil else { return }
        switch random(0...99) {
        case 0..<60: send()
        case 60..<75:
            isReadingPaused.toggle()
            if !isReadingPaused { receive() }
        case 75..<85: RunLoop.current.run(in: .default, until: .distantPast)
        case 85..<87: try? connection.sendEnd()
        case 87:
            isClosed = true
            connection.close()
        case 88:
            (isClosed, hasReset) = (true, true)
            connection.reset()
        default: receive()
        }
    }

    private func send() {
        let count = min(random(1...3000), connection.writableCount)
        guard count > 0 else { return }
        // It fails after the end of the output, or when the connection has just failed.
        guard (try? connection.send(pattern(sentCount..<sentCount + count))) != nil else { return }
        sentCount += count
    }

    private func receive() {
        let bytes = connection.receive(upTo: random(1...2000))
        #expect(bytes.isEmpty || !hasEnded)
        #expect(bytes == pattern(receivedCount..<receivedCount + bytes.count))
        receivedCount += bytes.count
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        #expect(!isInCallback && !isClosed && error == nil)
        isInCallback = true
        defer { isInCallback = false }
        switch event {
        case .openCompleted:
            #expect(!hasOpened)
            hasOpened = true
        case .hasBytesAvailable:
            #expect(hasOpened && !hasEnded)
            if !isReadingPaused { receive() }
        case .hasSpaceAvailable:
            #expect(hasOpened)
            if !isFinishing, random(0...3) == 0 { send() }
        case .endEncountered:
            #expect(hasOpened && !hasEnded)
            hasEnded = true
        case .errorOccurred(let error): self.error = error
        }
        if random(0...9) == 0 { RunLoop.current.run(in: .default, until: .distantPast) }
    }
}

@Suite(.runLoop(timeLimit: .seconds(600))) struct SimulatedPeersTests {
    private static let seedCount = Depth.of(full: 1000, quick: 25)

    /// Four connections whose ends send, pause, nest, end, close and reset at random, while the network resets some.
    private func run(_ world: World) throws {
        world.link.latency = .zero ... .milliseconds(20)
        if world.seed % 3 > 0 { world.link.chunkSizes = 1...900 }
        world.faults.resets = world.seed % 2 == 0 ? 0.002 : 0
        let server = world.host("server")
        var served: [Peer] = []
        let listener = try server.run {
            try Listener(.ipv4Any(port: 7000)) { _, connection in
                served.append(Peer(connection, seed: world.seed &* 16 &+ 8 &+ UInt64(served.count)))
            } acceptErrors: { _, _ in
            }
        }
        try RunLoop.current.add(listener, forMode: .common)
        let clients = (0..<4).map { number in
            Peer(Connection(toHost: "server", port: 7000), seed: world.seed &* 16 &+ UInt64(number))
        }
        world.time.advance(by: .seconds(1))
        let ends = clients.map { client in
            (
                client,
                client.connection.localAddress.flatMap { address in
                    served.first { $0.connection.peerAddress == address }
                }
            )
        }
        world.partition(world.localhost, server)
        world.time.advance(by: .seconds(1))
        world.heal()
        world.time.advance(by: .seconds(1))
        for peer in clients + served { peer.finish() }
        world.time.advance(by: .seconds(60))
        for case (let client, let server?) in ends {
            check(client, server)
            check(server, client)
        }
        for peer in clients + served { peer.connection.close() }
        listener.close()
    }

    /// Checks what `receiver` has got of what `sender` has sent.
    private func check(_ sender: Peer, _ receiver: Peer) {
        #expect(receiver.receivedCount <= sender.sentCount)
        // Neither has been told anything but the end: then nothing is missing.
        guard receiver.error == nil, !receiver.isClosed, sender.error == nil, !sender.hasReset else { return }
        #expect(receiver.hasEnded && receiver.receivedCount == sender.sentCount)
    }

    @Test func `whatever the ends of a connection do, bytes arrive in order, and all of them before the end`()
    {
        simulate(seeds: Self.seedCount) { world in try run(world) }
    }
}
