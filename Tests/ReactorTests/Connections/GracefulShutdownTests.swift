import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct GracefulShutdownTests {
    private let home = LoopThread()

    private func connections() throws -> Listener.Connections {
        try home.loop.connections(at: .ownLoopback) { Issue.record("\($0)") }
    }

    // MARK: Servers

    @Test func `a server stops accepting, serves on, and returns when its clients have left`() async throws {
        let (connections, loop, begun) = (try connections(), home.loop, Answer<GracefulShutdown>())
        let server = Task {
            try await loop.withGracefulShutdown(on: [], grace: .seconds(600)) { shutdown in
                begun.give(shutdown)
                try await connections.run { connection in
                    for try await chunk in connection.chunks() { try await connection.write(chunk) }
                }
                return shutdown.hasBegun
            }
        }
        let client = try SocketPeer(connectedTo: connections.localAddress)
        client.send("before")
        #expect(client.receive(6) == Array("before".utf8))
        begun.wait().begin()
        waitUntil { isRefused(connections.localAddress) }
        client.send("after")
        client.shutDown()
        #expect(client.receiveToEnd() == Array("after".utf8))
        #expect(try await server.value == true)
    }

    @Test func `a server that begins to run after the beginning serves its backlog and returns`()
        async throws
    {
        let connections = try connections()
        let client = try SocketPeer(connectedTo: connections.localAddress)
        let count = Shared(0)
        try await home.loop.withGracefulShutdown(on: [], grace: .seconds(600)) { shutdown in
            shutdown.begin()
            try await connections.run { _ in count.update { $0 += 1 } }
        }
        #expect(count.value == 1 && client.receiveToEnd() == [])
    }

    @Test func `after the grace the connections are cancelled, and what was written is sent`() async throws {
        let (loop, grace, address) = (home.loop, Duration.milliseconds(50), Answer<SocketAddress>())
        let begin = Shared(ContinuousClock.now)
        let server = Task {
            try await loop.withGracefulShutdown(on: [], grace: grace) { shutdown in
                let connections = try loop.connections(at: .ownLoopback)
                address.give(connections.localAddress)
                try await connections.run { connection in
                    try await connection.write("last")
                    begin.value = .now
                    shutdown.begin()
                    _ = try await connection.read()
                }
            }
        }
        let client = try SocketPeer(connectedTo: address.wait())
        #expect(client.receiveToEnd() == Array("last".utf8))
        #expect(try await server.value == nil)
        #expect(ContinuousClock.now - begin.value >= grace)
    }

    @Test func `the grace is time of the loop's clock`() async throws {
        try await withVirtualTime { time in
            let (loop, start) = (time.loop, time.now)
            let result: Void? = try await loop.withGracefulShutdown(on: [], grace: .seconds(3600)) {
                shutdown in
                shutdown.begin()
                try await loop.clock().sleep(for: .seconds(7200))
            }
            #expect(result == nil && time.now == start + .seconds(3600))
        }
    }

    @Test func `a server that has returned is released, though the shutdown is to come`() async throws {
        try await home.loop.withGracefulShutdown(on: []) { [home] _ in
            var connections: Listener.Connections? = try home.loop.connections(at: .ownLoopback)
            guard let address = connections?.localAddress else { return }
            let task = Task { [connections] in try await connections?.run { _ in } }
            task.cancel()
            _ = await task.result
            connections = nil
            waitUntil { isRefused(address) }
        }
    }

    // MARK: Results

    @Test func `the body's value and its errors are the caller's`() async throws {
        let loop = home.loop
        let value = try await loop.withGracefulShutdown { _ in 7 }
        #expect(value == 7)
        let errors = [
            await thrownError { try await loop.withGracefulShutdown { _ in throw Errno.ioError } },
            await thrownError { try await loop.withGracefulShutdown { _ in throw CancellationError() } },
            await thrownError {
                try await loop.withGracefulShutdown(on: [], grace: .zero) { shutdown in
                    shutdown.begin()
                    try? await loop.clock().sleep(for: .seconds(600))
                    throw Errno.ioError
                }
            },
            await thrownError { try await loop.withGracefulShutdown(on: [.kill]) { _ in } },
        ]
        #expect(errors[0] as? Errno == .ioError && errors[1] is CancellationError)
        #expect(errors[2] as? Errno == .ioError)
        #expect(errors[3] as? IOError == IOError(.watch, "SIGKILL", .invalidArgument))
    }

    @Test(arguments: [true, false])
    func `a cancelled caller gets the cancellation, also after the beginning`(hasBegun: Bool) async throws {
        let (loop, isRunning) = (home.loop, Answer<Void>())
        let task = Task {
            try await loop.withGracefulShutdown(on: [], grace: .seconds(600)) { shutdown in
                if hasBegun { shutdown.begin() }
                isRunning.give(())
                try await loop.clock().sleep(for: .seconds(600))
            }
        }
        isRunning.wait()
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    @Test func `a body that ignores its cancellation is waited for`() async throws {
        let loop = home.loop
        let result = try await loop.withGracefulShutdown(on: [], grace: .zero) { shutdown in
            shutdown.begin()
            while !Task.isCancelled { await Task.yield() }
            await Task.detached { await Task.yield() }.value
            return 7
        }
        #expect(result == 7)
    }

    @Test func `an inner shutdown begins with the outer one, and not the other way round`() async throws {
        let loop = home.loop
        #expect(GracefulShutdown.current == nil)
        try await loop.withGracefulShutdown(on: []) { outer in
            try await loop.withGracefulShutdown(on: []) { inner in
                #expect(GracefulShutdown.current === inner)
                inner.begin()
                #expect(!outer.hasBegun)
            }
            #expect(GracefulShutdown.current === outer)
            try await loop.withGracefulShutdown(on: []) { inner in
                outer.begin()
                #expect(inner.hasBegun)
            }
            try await loop.withGracefulShutdown(on: []) { inner in #expect(inner.hasBegun) }
        }
    }

    // MARK: The loop's end

    @Test(arguments: [true, false])
    func `without its loop the body continues, and has no grace`(hasBegun: Bool) async throws {
        let thread = try RunLoopThread(name: "ends")
        let (loop, shutdowns) = (thread.runLoop, Answer<GracefulShutdown>())
        let task = Task {
            try await loop.withGracefulShutdown(grace: .seconds(600)) { shutdown in
                if hasBegun { shutdown.begin() }
                shutdowns.give(shutdown)
                while !Task.isCancelled { await Task.yield() }
                throw CancellationError()
            }
        }
        let shutdown = shutdowns.wait()
        await thread.shutDown()
        shutdown.begin()
        #expect(try await task.value == nil)
    }

    // MARK: Signals, in processes of their own

    @Test func `a signal begins the shutdown, and the next one ends the process`() async {
        await #expect(processExitsWith: .signal(SIGTERM)) {
            let thread = try RunLoopThread(name: "loop")
            try await thread.runLoop.withGracefulShutdown(grace: .seconds(600)) { shutdown in
                kill(getpid(), SIGINT)
                try await shutdown.waitUntilBegun()
                // The loop has restored the actions before it continued anything.
                kill(getpid(), SIGTERM)
                try await thread.runLoop.clock().sleep(for: .seconds(600))
            }
        }
    }

    @Test func `a signal that is named twice is one`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "loop")
            try await thread.runLoop.withGracefulShutdown(on: [.terminate, .terminate]) { shutdown in
                kill(getpid(), SIGTERM)
                try await shutdown.waitUntilBegun()
            }
        }
    }

    @Test func `two signals that arrive at once end the process`() async {
        await #expect(processExitsWith: .signal(SIGINT)) {
            let thread = try RunLoopThread(name: "loop")
            try await thread.runLoop.withGracefulShutdown(grace: .seconds(600)) { _ in
                thread.runLoop.perform {
                    // The library's threads block signals.
                    var signals = sigset_t()
                    sigemptyset(&signals)
                    sigaddset(&signals, SIGINT)
                    pthread_sigmask(SIG_UNBLOCK, &signals, nil)
                    for _ in 0..<2 { raise(SIGINT) }
                }
                try await thread.runLoop.clock().sleep(for: .seconds(600))
            }
        }
    }

    @Test func `two different signals that arrive at once end the process`() async {
        let result = await #expect(processExitsWith: .failure) {
            let thread = try RunLoopThread(name: "loop")
            try await thread.runLoop.withGracefulShutdown(grace: .seconds(600)) { _ in
                thread.runLoop.perform {
                    // The library's threads block signals.
                    var signals = sigset_t()
                    for signal in [SIGINT, SIGTERM] { sigaddset(&signals, signal) }
                    pthread_sigmask(SIG_UNBLOCK, &signals, nil)
                    for signal in [SIGTERM, SIGINT] { raise(signal) }
                }
                try await thread.runLoop.clock().sleep(for: .seconds(600))
            }
        }
        #expect([.signal(SIGINT), .signal(SIGTERM)].contains(result?.exitStatus))
    }

    @Test(arguments: [true, false])
    func `the signals have their earlier actions after the call, and after begin, though the loop is busy`(
        hasReturned: Bool
    ) async {
        await #expect(processExitsWith: .signal(SIGINT)) { [hasReturned] in
            let thread = try RunLoopThread(name: "loop")
            @Sendable func keepBusy() {
                let isBusy = Answer<Void>()
                thread.runLoop.perform {
                    isBusy.give(())
                    sleep(600)
                }
                isBusy.wait()
            }
            try await thread.runLoop.withGracefulShutdown { shutdown in
                keepBusy()
                guard !hasReturned else { return }
                shutdown.begin()
                kill(getpid(), SIGINT)
                sleep(600)
            }
            kill(getpid(), SIGINT)
            sleep(600)
        }
    }

    @Test func `nothing listens for signals any more when the body has returned`() async throws {
        let loop = home.loop
        for _ in 0..<100 { try await loop.withGracefulShutdown(on: [.userDefinedTwo]) { _ in } }
        loop.performSynchronously {}
        #expect(!loop.explain().contains("SIGUSR2"))
    }
}
