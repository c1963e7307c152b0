import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Peers that read slowly, or not at all.
@Suite(.runLoop) struct SocketStreamPressureTests {
    /// Sizes of the write buffer, including 0, Cocoa's behaviour.
    static let sizes = [0, 1, 10, 4096, 65_536, 1 << 22]

    @Test(arguments: SocketOrigin.allCases, sizes)
    func `all bytes arrive in order, and the loop is never blocked`(origin: SocketOrigin, size: Int)
        async throws
    {
        try await onItsOwnThread {
            let (fixture, writer, loop) = (
                try SocketFixture(origin, isNarrow: true), Recorder(), RunLoop.current
            )
            var (random, sent, received) = (SeededGenerator(seed: UInt64(size)), 0, [UInt8]())
            let all = (0..<300_000).map { _ in UInt8.random(in: 0...255, using: &random) }
            fixture.output.writeBufferSize = size
            fixture.output.start(writer)
            let peer = try fixture.peer
            loop.serve { writer.events.count == 2 }
            try fixture.narrow()
            func write() {
                let size = Int.random(
                    in: 1...[1, 100, 30_000].randomElement(using: &random)!, using: &random)
                let count = fixture.output.writeOnce(all[sent..<min(sent + size, all.count)])
                #expect(count > 0)
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

    @Test(arguments: SocketOrigin.allCases, sizes.dropFirst())
    func `a full write buffer accepts nothing without blocking, and reports space when the peer reads`(
        origin: SocketOrigin, size: Int
    ) throws {
        let (fixture, writer, loop) = (
            try SocketFixture(origin, isNarrow: true), Recorder(), RunLoop.current
        )
        fixture.output.writeBufferSize = size
        fixture.output.start(writer)
        let peer = try fixture.peer
        loop.serve { writer.events.count == 2 }
        try fixture.narrow()
        var (sent, told, passes) = (0, 0, 0)
        // The kernel may take a little more, a little later.
        repeat {
            while case let count = fixture.output.writeOnce(pattern(100_000)), count > 0 { sent += count }
            told = writer.count(.hasSpaceAvailable)
            passes = loop.passesInAWhile()
        } while writer.count(.hasSpaceAvailable) > told || fixture.output.hasSpaceAvailable
        #expect(passes < 10 && sent >= size)
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

    @Test(arguments: SocketOrigin.allCases)
    func `without a write buffer a write accepts what the kernel takes, and space is reported later`(
        origin: SocketOrigin
    ) async throws {
        try await onItsOwnThread {
            let (fixture, writer, loop) = (
                try SocketFixture(origin, isNarrow: true), Recorder(), RunLoop.current
            )
            fixture.output.start(writer)
            let peer = try fixture.peer
            loop.serve { writer.events.count == 2 }
            try fixture.narrow()
            var (sent, left) = (0, 50)
            // As much as there is room for, one answer to each event.
            writer.onEvent = { _, event in
                guard event == .hasSpaceAvailable, left > 0 else { return }
                left -= 1
                sent += fixture.output.writeOnce(pattern(100_000))
            }
            sent += fixture.output.writeOnce(pattern(100_000))
            var received = 0
            while left > 0 {
                received += peer.receiveNow(upTo: 5000).count
                loop.poll(passes: 2)
            }
            fixture.releaseStreams()
            received += peer.receiveToEnd()?.count ?? 0
            #expect(received == sent && sent < 51 * 100_000)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a delegate that asks for space before it writes gets further events`(origin: SocketOrigin)
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

    @Test func `a full write buffer can be made smaller`()
        async throws
    {
        try await onItsOwnThread {
            let (fixture, writer, loop) = (
                try SocketFixture(.descriptor, isNarrow: true), Recorder(), RunLoop.current
            )
            fixture.output.writeBufferSize = 65_536
            fixture.output.start(writer)
            loop.serve { writer.events.count == 2 }
            while fixture.output.writeOnce(pattern(5000)) > 0 {}
            fixture.output.writeBufferSize = 10
            #expect(fixture.output.writeBufferSize == 10 && !fixture.output.hasSpaceAvailable)
            let peer = try fixture.peer
            while writer.count(.hasSpaceAvailable) == 1 {
                _ = peer.receiveNow(upTo: 1000)
                loop.poll(passes: 1)
            }
            while fixture.output.writeOnce(pattern(1)) > 0 {}
            // The kernel may have taken a little more meanwhile.
            #expect(fixture.output.writeOnce(pattern(5000)) <= 10)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `bytes can be sent one at a time`(origin: SocketOrigin) async throws {
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
    func `a write off a loop blocks until there is room`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        let (peer, received) = (try fixture.peer, Shared<[UInt8]?>(nil))
        let receiver = try JoinableThread(name: "receiver") { received.value = peer.receiveToEnd(by: 10_000) }
        #expect(fixture.output.write(pattern(3_000_000)) == 3_000_000)
        fixture.closeBoth()
        receiver.join()
        #expect(received.value == pattern(3_000_000))
    }
}

extension SocketFixture {
    /// The peer of the streams: the input is open, and both ends are narrow.
    fileprivate func opened() throws -> SocketPeer {
        input.open()
        while input.streamStatus == .opening { sched_yield() }
        let peer = try peer
        try narrow()
        return peer
    }

    /// Makes the peer send back what it receives, and then close.
    fileprivate func echo(_ count: Int) throws -> JoinableThread {
        for stream in streams { stream.open() }
        let peer = try peer
        return try JoinableThread(name: "echo") {
            for _ in 0..<count { peer.send(peer.receive(1)) }
            peer.close()
        }
    }
}
