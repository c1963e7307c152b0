import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamThreadTests {
    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `closing a half ends its blocking read`(
        origin: SocketOrigin, closesBoth: Bool
    )
        throws
    {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        let handed = Carrier(fixture.streams)
        let closer = try JoinableThread(name: "closer") {
            while handed.value[0].streamStatus != .reading { sched_yield() }
            if closesBoth { handed.value[1].close() }
            handed.value[0].close()
        }
        var byte: UInt8 = 0
        #expect(fixture.input.read(&byte, maxLength: 1) == -1)
        closer.join()
        #expect(fixture.input.streamStatus == .closed && fixture.input.streamError == nil)
        #expect(closesBoth || fixture.output.writeOnce([1]) == 1)
    }

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `closing a half ends its blocking write`(
        origin: SocketOrigin, closesBoth: Bool
    )
        throws
    {
        let fixture = try SocketFixture(origin, isNarrow: true)
        try fixture.openBoth()
        let handed = Carrier(fixture.streams)
        let isFull = Shared(false)
        let closer = try JoinableThread(name: "closer") {
            while !isFull.value || handed.value[1].streamStatus != .writing { sched_yield() }
            if closesBoth { handed.value[0].close() }
            handed.value[1].close()
        }
        while fixture.output.hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(10_000)) }
        isFull.value = true
        #expect(fixture.output.write(pattern(8_000_000)) < 8_000_000)
        closer.join()
        #expect(fixture.output.streamStatus == .closed && fixture.output.streamError == nil)
    }

    /// The sender, the timeout's timer and the closing thread take the locks of the connection and of the buffer.
    @Test func `a write timeout during the closing of a buffered stream blocks no thread`()
        async
    {
        await #expect(processExitsWith: .success) {
            // A deadlock fails the test, and does not hold it up for good.
            alarm(600)
            var random = SeededGenerator(seed: 1)
            for _ in 0..<1000 {
                let fixture = try SocketFixture(.descriptor, isNarrow: true)
                let peer = try fixture.peer
                fixture.output.writeBufferSize = 65_536
                let timeout = Duration.microseconds(Int64.random(in: 1...1000, using: &random))
                fixture.output.setProperty(timeout, forKey: .socketWriteTimeoutKey)
                try fixture.openBoth()
                let readsAll = Bool.random(using: &random)
                let reader = try JoinableThread(name: "reader") {
                    if readsAll { _ = peer.receiveToEnd(by: 100) }
                }
                _ = fixture.output.writeOnce(pattern(60_000))
                (.now + .microseconds(Int64.random(in: 0...1000, using: &random))).busyWait()
                fixture.closeBoth()
                reader.join()
            }
        }
    }

    @Test(arguments: [true, false])
    func `closing a half ends its wait for the connection`(closesBoth: Bool) throws {
        let server = try FullServer()
        let pair = Stream.connection(to: server.address)
        pair.input.open()
        pair.output.open()
        let handed = Carrier(pair)
        let (isReading, reader) = (Shared(false), KernelThread.current)
        let closer = try JoinableThread(name: "closer") {
            waitUntil { isReading.value && reader.isAsleep }
            if closesBoth { handed.value.output.close() }
            handed.value.input.close()
        }
        isReading.value = true
        var byte: UInt8 = 0
        #expect(pair.input.read(&byte, maxLength: 1) == -1)
        closer.join()
        #expect(
            pair.input.streamStatus == .closed
                && pair.output.streamStatus == (closesBoth ? .closed : .opening))
    }

    @Test(arguments: SocketOrigin.allCases)
    func `the halves may be used on two threads at once`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        let (peer, output) = (try fixture.peer, Carrier(fixture.output!))
        let writer = try JoinableThread(name: "writer") {
            output.value.write(pattern(1_000_000))
            try? output.value.shutDown()
        }
        let echo = try JoinableThread(name: "echo") {
            while let piece = peer.receive(upTo: 10_000), !piece.isEmpty { peer.send(piece) }
            peer.shutDown()
        }
        var bytes: [UInt8] = []
        while case let piece = fixture.input.read(upTo: 7000), !piece.isEmpty { bytes += piece }
        #expect(bytes == pattern(1_000_000) && fixture.input.streamStatus == .atEnd)
        writer.join()
        echo.join()
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a half may be closed on one thread while another reads`(origin: SocketOrigin) throws {
        for _ in 0..<30 {
            let fixture = try SocketFixture(origin)
            try fixture.openBoth()
            let (peer, streams) = (try fixture.peer, Carrier(fixture.streams))
            onThreads(3) { index in
                switch index {
                case 0: while !(streams.value[0] as! InputStream).read(upTo: 100).isEmpty {}
                case 1: for stream in streams.value { stream.close() }
                default: while peer.send([1, 2, 3]) {}
                }
            }
            #expect(fixture.streams.allSatisfy { $0.streamStatus == .closed })
            #expect(fixture.input.property(forKey: .socketDescriptorKey) == nil)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `after removal on another thread no event is delivered`(origin: SocketOrigin)
        async throws
    {
        try await onItsOwnThread {
            let (thread, fixture) = (try RunLoopThread(name: "streams"), try SocketFixture(origin))
            let counter = Counter { stream, event in
                if event == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 10) }
            }
            for stream in fixture.streams {
                stream.delegate = counter
                stream.schedule(in: thread.runLoop, forMode: .default)
                stream.open()
            }
            waitUntil { counter.events.value.count == 3 }
            for stream in fixture.streams { stream.remove(from: thread.runLoop, forMode: .default) }
            thread.runLoop.performAndWait {}
            let told = counter.events.value.count
            try fixture.peer.send([1])
            #expect(fixture.output.writeOnce([1]) == 1)
            for _ in 0..<3 { thread.runLoop.performAndWait {} }
            #expect(counter.events.value.count == told)
            thread.stop()
        }
    }
}
