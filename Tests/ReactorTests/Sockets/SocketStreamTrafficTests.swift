import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Both directions of a connection at once, plain and protected, with peers that read slowly.
@Suite(.runLoop) struct SocketStreamTrafficTests {
    enum Ending: CaseIterable {
        case shuttingDown, closingOutput, closingBoth, releasing
    }

    /// Sizes of the write buffer: none, as Cocoa has it, less than a write, less than all bytes, and more.
    @Test(arguments: SocketOrigin.allCases, [0, 1, 4096, 1 << 20])
    func `all bytes arrive before the end, and no call blocks`(origin: SocketOrigin, bufferSize: Int) throws {
        var random = SeededGenerator(seed: UInt64(bufferSize))
        for isProtected in [false, true] {
            for ending in Ending.allCases {
                let fixture = try SocketFixture(origin, isNarrow: true)
                fixture.output.writeBufferSize = bufferSize
                let traffic = Traffic(fixture, isProtected: isProtected, ending: ending, seed: random.next())
                try traffic.run()
            }
        }
    }

    @Test(arguments: SocketOrigin.allCases, [false, true])
    func `two threads may use the halves, and wait for bytes and room`(
        origin: SocketOrigin, isProtected: Bool
    ) throws {
        let fixture = try isProtected ? .protected(origin, isNarrow: true) : SocketFixture(origin)
        try fixture.openBoth()
        let (peer, output) = (try fixture.peer, Carrier(fixture.output!))
        let expected = pattern(isProtected ? 200_000 : 1_000_000)
        let writer = try Background {
            var rest = expected[...]
            while !rest.isEmpty, case let count = output.value.writeOnce(rest.prefix(70_000)), count >= 0 {
                rest = rest.dropFirst(count)
            }
            try? output.value.shutDown()
            return rest.count
        }
        let echo = try JoinableThread(name: "echo") {
            while let piece = peer.receive(upTo: 10_000), !piece.isEmpty { peer.send(piece) }
            peer.shutDown()
        }
        var bytes: [UInt8] = []
        while case let piece = fixture.input.read(upTo: 7000), !piece.isEmpty { bytes += piece }
        #expect(bytes == expected && fixture.input.streamStatus == .atEnd)
        #expect(writer.value == 0)
        echo.join()
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor], [1, 4096, 1 << 20])
    func `a full write buffer reports space when the peer reads`(origin: SocketOrigin, size: Int) throws {
        let (fixture, writer, loop) = (try SocketFixture(origin, isNarrow: true), Recorder(), RunLoop.current)
        fixture.output.writeBufferSize = size
        try fixture.start(Recorder(), writer)
        let peer = try fixture.peer
        try fixture.narrow()
        var (sent, told, passes) = (0, 0, 0)
        // The kernel may take a little more, a little later.
        repeat {
            sent += fixture.fill()
            told = writer.count(.hasSpaceAvailable)
            passes = loop.passesInAWhile()
        } while writer.count(.hasSpaceAvailable) > told || fixture.output.hasSpaceAvailable
        #expect(passes < 10 && sent >= size)
        // A full write buffer can be made smaller.
        fixture.output.writeBufferSize = 1
        #expect(fixture.output.writeBufferSize == 1 && !fixture.output.hasSpaceAvailable)
        var received = 0
        while writer.count(.hasSpaceAvailable) == told {
            received += peer.receiveNow(upTo: 2000).count
            loop.poll(passes: 1)
        }
        #expect(fixture.output.hasSpaceAvailable && received <= sent)
        fixture.releaseStreams()
        received += peer.receiveToEnd()?.count ?? 0
        #expect(received == sent)
    }

    @Test func `a write buffer that gets another size takes as much`() throws {
        let (fixture, loop) = (try SocketFixture(.descriptor, isNarrow: true), RunLoop.current)
        fixture.output.writeBufferSize = 1
        try fixture.start(Recorder(), Recorder())
        while fixture.output.hasSpaceAvailable {
            _ = fixture.output.writeOnce(pattern(100_000))
            loop.settle()
        }
        fixture.output.writeBufferSize = 5000
        #expect(
            fixture.output.hasSpaceAvailable
                && (4000...5000).contains(fixture.output.writeOnce(pattern(9000))))
        fixture.releaseStreams()
    }

    @Test func `a write buffer takes no more than its size beyond what the kernel takes`() throws {
        let (fixture, writer) = (try SocketFixture(.descriptor, isNarrow: true), Recorder())
        fixture.output.writeBufferSize = 1000
        try fixture.start(Recorder(), writer)
        #expect(fixture.output.writeOnce(pattern(1_000_000)) < 100_000)
        fixture.closeBoth()
    }
}

/// Random bytes in both directions, in random pieces.
private final class Traffic {
    private let fixture: SocketFixture
    private let isProtected: Bool
    private let ending: SocketStreamTrafficTests.Ending
    private var random: SeededGenerator
    private let outgoing: [UInt8]
    private let incoming: [UInt8]
    private var sentCount = 0
    private var zeroReadCount = 0
    private let (reader, writer) = (Recorder(), Recorder())
    private let loop = RunLoop.current

    init(
        _ fixture: SocketFixture, isProtected: Bool, ending: SocketStreamTrafficTests.Ending, seed: UInt64
    ) {
        (self.fixture, self.isProtected, self.ending) = (fixture, isProtected, ending)
        random = SeededGenerator(seed: seed)
        outgoing = pattern(Int.random(in: 1...60_000, using: &random))
        incoming = pattern([0, 1, 20_000].randomElement(using: &random)!)
    }

    /// Whether the input is read to its end.
    private var readsAll: Bool { ending == .shuttingDown || ending == .closingOutput }

    func run() throws {
        if isProtected { #expect(fixture.input.protect(by: MaskingSecurity())) }
        for stream in fixture.streams { stream.open() }
        let peer = try fixture.peer
        if isProtected { peer.answerHello() }
        waitUntilOpen(fixture.streams)
        try fixture.narrow()
        reader.onEvent = { [unowned self] stream, event in if event == .hasBytesAvailable { read(stream) } }
        writer.onEvent = { [unowned self] stream, event in if event == .hasSpaceAvailable { write() } }
        fixture.schedule(reader, writer)
        let received = try receive(from: peer)
        // A ticket has no clear bytes.
        let records = Masking.record(.ticket, [1]) + Masking.records(of: incoming) + Masking.record(.ticket)
        let bytes = isProtected ? records + Masking.record(.end) : incoming
        let sender = try JoinableThread(name: "sender") {
            peer.send(bytes)
            peer.shutDown()
        }
        loop.serve { sentCount == outgoing.count && (!readsAll || reader.events.last == .endEncountered) }
        if readsAll { checkInput() }
        if ending == .releasing {
            fixture.releaseStreams()
        } else {
            for half in fixture.streams.shuffled(using: &random) { half.close() }
        }
        #expect(loop.run(in: .default) == .finished)
        sender.join()
        #expect(received() == outgoing)
    }

    private func checkInput() {
        loop.poll()
        #expect(reader.bytes == incoming && zeroReadCount == 1)
        #expect(reader.count(.endEncountered) == 1 && fixture.input.streamStatus == .atEnd)
        #expect(fixture.input.read(upTo: 1).isEmpty)
    }

    private func read(_ stream: Stream) {
        let bytes = fixture.input.read(upTo: [1, 100, 30_000].randomElement(using: &random)!)
        reader.bytes += bytes
        if bytes.isEmpty { zeroReadCount += 1 }
    }

    private func write() {
        // Some clients ask first.
        if Bool.random(using: &random), !fixture.output.hasSpaceAvailable { return }
        guard sentCount < outgoing.count else { return }
        let size = [1, 100, 30_000].randomElement(using: &random)!
        let count = fixture.output.writeOnce(outgoing[sentCount...].prefix(size))
        #expect(count > 0 || isProtected && count == 0)
        sentCount += max(count, 0)
        guard sentCount == outgoing.count else { return }
        switch ending {
        case .shuttingDown: #expect(throws: Never.self) { try fixture.output.shutDown() }
        case .closingOutput: fixture.output.close()
        case .closingBoth, .releasing: break
        }
    }

    /// Receives on this thread's loop until the end; a write that waited for the peer would wait forever.
    private func receive(from peer: SocketPeer) throws -> () -> [UInt8]? {
        var received: [UInt8] = []
        let source = DescriptorSource(peer.descriptor, for: .readable) { [unowned self] source, _ in
            let piece = peer.receive(upTo: Int.random(in: 1...4000, using: &random)) ?? []
            received += piece
            if piece.isEmpty { source.cancel() }
        }
        try loop.add(source, forMode: .default)
        return { [isProtected] in isProtected ? Masking.clearBytes(of: received) : received }
    }
}
