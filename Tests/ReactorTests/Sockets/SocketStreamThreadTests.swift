import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Use of the halves on several threads, and connecting at the moment of an action on another thread.
@Suite(.runLoop) struct SocketStreamThreadTests {
    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `closing a half ends its blocking read or write`(origin: SocketOrigin, closesBoth: Bool) throws {
        for isInput in [true, false] {
            let fixture = try SocketFixture(origin, isNarrow: true)
            try fixture.openBoth()
            if !isInput {
                while fixture.output.hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(10_000)) }
            }
            let handed = Carrier(isInput ? fixture.streams : fixture.streams.reversed())
            let closer = try JoinableThread(name: "closer") {
                while handed.value[0].streamStatus != (isInput ? .reading : .writing) { sched_yield() }
                if closesBoth { handed.value[1].close() }
                handed.value[0].close()
            }
            var byte: UInt8 = 0
            if isInput {
                #expect(fixture.input.read(&byte, maxLength: 1) == -1)
            } else {
                #expect(fixture.output.write(pattern(8_000_000)) < 8_000_000)
            }
            closer.join()
            #expect(handed.value[0].streamStatus == .closed && handed.value[0].streamError == nil)
            #expect(!isInput || closesBoth || fixture.output.writeOnce([1]) == 1)
        }
    }

    @Test(arguments: [true, false])
    func `closing a half ends its wait for the connection`(closesBoth: Bool) throws {
        let server = try FullServer()
        let pair = Connection(to: server.address).streams
        pair.input.open()
        pair.output.open()
        let (handed, reader) = (Carrier(pair), KernelThread.current)
        let isReading = Shared(false)
        let closer = try JoinableThread(name: "closer") {
            waitUntil { isReading.value && reader.isAsleep }
            if closesBoth { handed.value.output.close() }
            handed.value.input.close()
        }
        isReading.value = true
        var byte: UInt8 = 0
        #expect(pair.input.read(&byte, maxLength: 1) == -1)
        closer.join()
        #expect(pair.input.streamStatus == .closed)
        #expect(pair.output.streamStatus == (closesBoth ? .closed : .opening))
    }

    /// The sender, the timeout's timer and the closing thread take the locks of the connection and of the buffer.
    @Test func `a write timeout during the closing of a buffered stream blocks no thread`() throws {
        var random = SeededGenerator(seed: 1)
        for _ in 0..<50 {
            let fixture = try SocketFixture(.descriptor, isNarrow: true)
            let peer = try fixture.peer
            fixture.output.writeBufferSize = 65_536
            fixture.connection.writeTimeout = .microseconds(Int64.random(in: 1...1000, using: &random))
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

    // MARK: Connecting

    @Test func `closing at the moment of connecting leaves no connection open`() async {
        await #expect(processExitsWith: .success) {
            let sockets = try streamsLoop()
            let before = openSockets()
            for _ in 0..<10 {
                let fixture = try SocketFixture()
                let (server, arrived, released) = (fixture.server, Answer<Void>(), Answer<Void>())
                // It has woken for the connection, and is about to take it.
                sockets.performSynchronously {
                    let observer = RunLoop.Observer(for: .afterWaiting) { observer, _ in
                        guard server?.hasPendingConnection == true else { return }
                        observer.invalidate()
                        arrived.give(())
                        released.wait()
                    }
                    RunLoop.current.add(observer, forMode: .default)
                }
                fixture.input.open()
                arrived.wait()
                fixture.releaseStreams()
                released.give(())
                // Else the server's end would be the connection's.
                sockets.performSynchronously {}
            }
            try #require(openSockets() == before)
        }
    }

    @Test func `opening on one thread and closing on another leaves nothing behind`() async {
        await #expect(processExitsWith: .success) {
            _ = try streamsLoop()
            let before = openSockets()
            struct Internals { weak var object: AnyObject? }
            var engines: [Internals] = []
            for _ in 0..<60 {
                let fixture = try SocketFixture(.abstract)
                fixture.releaseOutput()
                engines.append(Internals(object: fixture.input.internals))
                let input = Carrier(fixture.input!)
                onThreads(2) { index in
                    if index == 0 { return input.value.open() }
                    while input.value.streamStatus == .notOpen {}
                    input.value.close()
                }
            }
            waitUntil { openSockets() == before && engines.allSatisfy { $0.object == nil } }
        }
    }
}
