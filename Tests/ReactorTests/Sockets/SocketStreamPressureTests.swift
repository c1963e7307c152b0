import Glibc
import SystemPackage
import Testing

@testable import Reactor

/// Peers that read slowly, or not at all.
@Suite struct SocketStreamPressureTests {
    struct Marks: Sendable {
        let high: Int
        let low: Int
        static let all = [
            Marks(high: 1, low: 0), Marks(high: 10, low: 3),
            Marks(high: 4096, low: 0),
            Marks(high: 65_536, low: 16_384), Marks(high: 1 << 22, low: 1 << 20),
            Marks(high: 1000, low: 5000),
        ]

        func set(on stream: Stream) {
            #expect(stream.setProperty(high, forKey: .socketHighWatermarkKey))
            #expect(stream.setProperty(low, forKey: .socketLowWatermarkKey))
        }
    }

    /// What the output keeps.
    private func kept(_ output: OutputStream) -> Int { (output.engine.backend as! SocketOutput).keptCount }

    @Test(arguments: SocketOrigin.allCases, Marks.all)
    func `all bytes arrive in order, and the loop is never held up`(origin: SocketOrigin, marks: Marks)
        async throws
    {
        try await onItsOwnThread {
            let (fixture, writer, loop) = (
                try SocketFixture(origin, isNarrow: true), Recorder(), RunLoop.current
            )
            var (random, sent, received) = (SeededGenerator(seed: UInt64(marks.high)), 0, [UInt8]())
            let all = (0..<300_000).map { _ in UInt8.random(in: 0...255, using: &random) }
            marks.set(on: fixture.output)
            fixture.output.start(writer)
            let peer = try fixture.peer
            loop.serve { writer.events.count == 2 }
            try fixture.narrow()
            func write() {
                let size = Int.random(
                    in: 1...[1, 100, 30_000].randomElement(using: &random)!, using: &random)
                let count = fixture.output.writeOnce(all[sent..<min(sent + size, all.count)])
                #expect(count > 0 && kept(fixture.output) <= marks.high)
                sent += max(count, 0)
                if sent == all.count { fixture.output.close() }
            }
            writer.onEvent = { _, event in if event == .hasSpaceAvailable { write() } }
            // On the same thread: a write that waits for the peer would wait for ever.
            let reading = DescriptorSource(peer.descriptor, for: .readable) { source, _ in
                let piece = peer.receive(upTo: Int.random(in: 1...4000, using: &random)) ?? []
                received += piece
                if piece.isEmpty { source.cancel() }
            }
            try loop.add(reading, forMode: .default)
            fixture.input.open()
            fixture.input.close()
            write()
            #expect(loop.run(in: .default) == .finished)
            #expect(received == all)
        }
    }

    @Test(arguments: SocketOrigin.allCases, Marks.all)
    func `a peer that does not read costs no more than the high mark, and space is told at the low one`(
        origin: SocketOrigin, marks: Marks
    ) async throws {
        try await onItsOwnThread {
            let (fixture, writer, loop) = (
                try SocketFixture(origin, isNarrow: true), Recorder(), RunLoop.current
            )
            marks.set(on: fixture.output)
            fixture.output.start(writer)
            let peer = try fixture.peer
            loop.serve { writer.events.count == 2 }
            try fixture.narrow()
            var sent = 0
            func fill() {
                while fixture.output.hasSpaceAvailable {
                    sent += fixture.output.writeOnce(pattern(100_000))
                    if sent > 20_000_000 { return }
                }
            }
            // The kernel may take a little more, a little later.
            var (told, passes) = (0, 0)
            repeat {
                fill()
                told = writer.count(.hasSpaceAvailable)
                passes = loop.passesInAWhile()
            } while (writer.count(.hasSpaceAvailable) > told || fixture.output.hasSpaceAvailable)
                && sent < 20_000_000
            #expect(passes < 10 && sent < 20_000_000)
            #expect(kept(fixture.output) <= marks.high && !fixture.output.hasSpaceAvailable)
            var received = 0
            while writer.count(.hasSpaceAvailable) == told {
                // No sooner than it is so.
                received += peer.receive(upTo: 2000)?.count ?? 0
                let before = kept(fixture.output)
                loop.poll(passes: 1)
                if writer.count(.hasSpaceAvailable) > told {
                    #expect(kept(fixture.output) <= max(marks.low, 0))
                }
                #expect(kept(fixture.output) <= before)
            }
            #expect(fixture.output.hasSpaceAvailable && received <= sent)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a delegate that asks whether there is space before it writes is told again`(origin: SocketOrigin)
        async throws
    {
        try await onItsOwnThread {
            let (fixture, writer, loop) = (
                try SocketFixture(origin, isNarrow: true), Recorder(), RunLoop.current
            )
            let peer = try fixture.opened()
            var (left, received) = (pattern(300_000)[...], 0)
            writer.onEvent = { _, event in
                guard event == .hasSpaceAvailable, fixture.output.hasSpaceAvailable, !left.isEmpty else {
                    return
                }
                left = left.dropFirst(fixture.output.writeOnce(left.prefix(500)))
            }
            fixture.output.start(writer)
            let reading = DescriptorSource(peer.descriptor, for: .readable) { source, _ in
                received += peer.receive(upTo: 3000)?.count ?? 0
                if received == 300_000 { source.cancel() }
            }
            try loop.add(reading, forMode: .default)
            while reading.isValid {
                let result = loop.run(
                    in: .default, until: .after(milliseconds: 10_000), returnAfterSourceHandled: true)
                try #require(result == .handledSource, "nothing more comes")
            }
            #expect(left.isEmpty)
        }
    }

    @Test func `small marks that are set while much is kept hold from then on`() async throws {
        try await onItsOwnThread {
            let (fixture, writer, loop) = (
                try SocketFixture(.descriptor, isNarrow: true), Recorder(), RunLoop.current
            )
            fixture.output.start(writer)
            loop.serve { writer.events.count == 2 }
            while kept(fixture.output) < 65_536 { _ = fixture.output.writeOnce(pattern(5000)) }
            #expect(kept(fixture.output) == 65_536)
            Marks(high: 10, low: 60_000).set(on: fixture.output)
            #expect(!fixture.output.hasSpaceAvailable)
            writer.onEvent = { _, event in
                // A write for which there is no room would wait for ever: nobody else reads.
                if event == .hasSpaceAvailable { #expect(kept(fixture.output) < 10) }
                if event == .hasSpaceAvailable { #expect(fixture.output.writeOnce([1]) == 1) }
            }
            while writer.count(.hasSpaceAvailable) == 1 {
                _ = try fixture.peer.receive(upTo: 1000)
                loop.poll(passes: 1)
            }
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `bytes go one at a time`(origin: SocketOrigin) async throws {
        try await onItsOwnThread {
            let (fixture, reader, writer) = (try SocketFixture(origin), Recorder(), Recorder())
            let count = 3000
            let host = try fixture.echo(count)
            fixture.input.start(reader)
            fixture.output.start(writer)
            reader.readsEverything(by: 1)
            var sent = 0
            writer.onEvent = { stream, event in
                guard event == .hasSpaceAvailable, sent < count else { return }
                sent += fixture.output.writeOnce([pattern(count)[sent]])
            }
            RunLoop.current.serve { reader.events.last == .endEncountered }
            host.join()
            #expect(reader.bytes == pattern(count) && reader.count(.hasBytesAvailable) == count + 1)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a write off a loop waits for room, and keeps nothing`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        let (peer, received) = (try fixture.peer, Shared<[UInt8]?>(nil))
        let receiver = try JoinableThread(name: "receiver") { received.value = peer.receiveToEnd(by: 10_000) }
        #expect(fixture.output.write(pattern(3_000_000)) == 3_000_000 && kept(fixture.output) == 0)
        fixture.closeBoth()
        receiver.join()
        #expect(received.value == pattern(3_000_000))
    }
}

extension SocketFixture {
    /// Whom the streams are connected with: the input is open, and both ends are narrow.
    fileprivate func opened() throws -> SocketPeer {
        input.open()
        while input.streamStatus == .opening { sched_yield() }
        let peer = try peer
        try narrow()
        return peer
    }

    /// Has the peer send back what it gets, and then close.
    fileprivate func echo(_ count: Int) throws -> JoinableThread {
        for stream in streams { stream.open() }
        let peer = try peer
        return try JoinableThread(name: "echo") {
            for _ in 0..<count { peer.send(peer.receive(1)) }
            peer.close()
        }
    }
}
