import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ConnectionsTests {
    private let home = LoopThread()

    private func connections(at address: SocketAddress = .ownLoopback) throws -> Listener.Connections {
        try home.loop.connections(at: address) { Issue.record("\($0)") }
    }

    @Test(arguments: Place.allCases)
    func `a task accepts one connection after the other, and takes no other with it`(place: Place)
        async throws
    {
        let folder = TemporaryFolder()
        let connections = try connections(at: place.address(in: folder))
        let clients = try (0..<4).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
        for limit in [2, 1] {
            var count = 0
            for try await connection in connections {
                #expect(connection.streams.input.streamStatus == .notOpen)
                count += 1
                if count == limit { break }
            }
        }
        _ = try await connections.accept(timeout: .seconds(600))
        withExtendedLifetime(clients) {}
    }

    @Test func `accepting leaves the loop to its other work`() async throws {
        let (loop, connections, count, hasRun) = (home.loop, try connections(), 60, Shared(false))
        let clients = try (0..<count).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
        try await Task(executorPreference: home.executor) {
            loop.perform { hasRun.value = true }
            for _ in 0..<count { try await connections.accept().close() }
            #expect(hasRun.value)
        }.value
        withExtendedLifetime(clients) {}
    }

    @Test func `a connection that is not awaited stays in the backlog`() async throws {
        let folder = TemporaryFolder()
        let address = try SocketAddress(unixPath: FilePath(folder.path("socket")))
        let connections = try home.loop.connections(at: address, options: .init(backlog: 0)) { _ in }
        // The kernel's queue holds one connection more than the backlog.
        let first = try SocketPeer(connectedTo: address, isBlocking: false)
        #expect(throws: Errno.resourceTemporarilyUnavailable) {
            try SocketPeer(connectedTo: address, isBlocking: false)
        }
        _ = try await connections.accept()
        let second = try SocketPeer(connectedTo: address, isBlocking: false)
        withExtendedLifetime((first, second)) {}
    }

    @Test func `an iterator that has ended or thrown leaves the socket to others`() async throws {
        let connections = try connections()
        let cancelled = connections.makeAsyncIterator()
        let task = Task { _ = try await cancelled.next() }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        let client = try SocketPeer(connectedTo: connections.localAddress)
        let iterator = connections.makeAsyncIterator()
        #expect(try await iterator.next() != nil)
        #expect(try await cancelled.next() == nil)
        connections.close()
        #expect(try await iterator.next() == nil)
        #expect(try await connections.makeAsyncIterator().next() == nil)
        #expect(isRefused(connections.localAddress))
        withExtendedLifetime(client) {}
    }

    @Test(arguments: [true, false])
    func `closing accepts nothing more, although the loop has not closed the socket`(isDrained: Bool) throws {
        let fixture = try EventFixture(.connections, on: .current)
        try fixture.cause()
        try onAThread {
            fixture.close()
            if isDrained { fixture.connections?.drain() }
            #expect(!fixture.takesNow())
        }
    }

    @Test func `draining accepts the backlog, then ends the iteration and closes the socket`() async throws {
        let connections = try connections()
        let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
        connections.drain()
        var count = 0
        for try await _ in connections { count += 1 }
        #expect(count == 3)
        #expect(isRefused(connections.localAddress))
        withExtendedLifetime(clients) {}
    }

    @Test(arguments: [true, false])
    func `draining ends an iteration that waits`(isOnLoop: Bool) async throws {
        let connections = try connections()
        let task = Task(executorPreference: isOnLoop ? home.executor : nil) {
            for try await _ in connections { Issue.record("a connection") }
        }
        for _ in 0..<5 { await Task.yield() }
        connections.drain()
        try await task.value
        #expect(isRefused(connections.localAddress))
    }

    @Test(arguments: [true, false])
    func `closing or releasing removes the socket's file at once, although the loop does not run`(
        isReleased: Bool
    ) throws {
        let folder = TemporaryFolder()
        let address = try SocketAddress(unixPath: FilePath(folder.path("socket")))
        let connections = Shared<Listener.Connections?>(try RunLoop.current.connections(at: address) { _ in })
        #expect(folder.names == ["socket"])
        try onAThread { if isReleased { connections.value = nil } else { connections.value?.close() } }
        #expect(folder.names == [])
        // Another server may take the path before the loop closes the socket.
        let next = try RunLoop.current.connections(at: address) { _ in }
        RunLoop.current.poll()
        #expect(folder.names == ["socket"])
        next.close()
    }

    @Test func `without descriptors accepting backs off, reports it, and loses no client`() async {
        await #expect(processExitsWith: .success) {
            let (faults, reports) = (Shared<[IOError]>([]), debuggedReports())
            let thread = try RunLoopThread(name: "faults")
            let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: 0)) { fault in
                faults.update { $0.append(fault) }
            }
            let clients = try (0..<2).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
            var held: [CInt] = []
            var limit = rlimit(rlim_cur: 1024, rlim_max: 1024)
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            while case let number = dup(0), number >= 0 { held.append(number) }
            // One for the first client, and the last four, which accepting leaves to libdispatch: it runs the task, and
            // aborts without any.
            for number in held where number >= 1019 { close(number) }
            let first = try await connections.accept()
            let task = Task { _ = try await connections.accept() }
            faults.wait { $0.isEmpty ? nil : () }
            for number in held where number < 1019 { close(number) }
            try await task.value
            guard faults.value.map(\.errno) == [.tooManyOpenFiles] else { exit(1) }
            guard reports.value.contains(where: { $0.kind == "acceptError" }) else { exit(2) }
            withExtendedLifetime((clients, first)) {}
            exit(0)
        }
    }
}
