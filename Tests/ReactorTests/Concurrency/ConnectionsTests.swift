import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ConnectionsTests {
    @Test(arguments: Place.allCases, [true, false])
    func `a task accepts one connection after the other`(place: Place, isOnLoop: Bool) async throws {
        let folder = TemporaryFolder()
        let address = try place.address(in: folder)
        try await withRunLoopThread(name: "accepts") { thread in
            let loop = thread.runLoop
            let connections = try loop.connections(at: address) { Issue.record("\($0)") }
            let task = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                var count = 0
                for try await connection in connections {
                    #expect(loop.isCurrent == isOnLoop)
                    #expect(connection.input.streamStatus == .notOpen)
                    count += 1
                    if count == 3 { break }
                }
                return count
            }
            let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
            #expect(try await task.value == 3)
            withExtendedLifetime(clients) {}
        }
    }

    @Test func `a connection that is not awaited stays in the backlog`() async throws {
        try await withRunLoopThread(name: "backlog") { thread in
            let folder = TemporaryFolder()
            let address = try SocketAddress(unixPath: folder.path("socket"))
            let options = Listener.Options(backlog: 0)
            let connections = try thread.runLoop.connections(at: address, options: options) { _ in }
            // The kernel's queue holds one connection more than the backlog.
            let first = try SocketPeer(connectedTo: address, isBlocking: false)
            #expect(throws: Errno.resourceTemporarilyUnavailable) {
                try SocketPeer(connectedTo: address, isBlocking: false)
            }
            _ = try await connections.accept()
            let second = try SocketPeer(connectedTo: address, isBlocking: false)
            withExtendedLifetime((first, second)) {}
        }
    }

    @Test func `a task of the loop accepts from a socket that another thread has just opened`() async throws {
        try await withRunLoopThread(name: "opened elsewhere") { thread in
            let loop = thread.runLoop
            try await loop.onActor { _ in
                let connections = try madeElsewhere { try loop.connections(at: .ownLoopback) { _ in } }
                let client = Shared<SocketPeer?>(nil)
                // The task waits before the client connects.
                loop.perform { client.value = try? SocketPeer(connectedTo: connections.localAddress) }
                _ = try await connections.accept()
                withExtendedLifetime(client) {}
            }
        }
    }

    @Test func `a socket that is closed before the loop has started to watch it is released`() async throws {
        try await withRunLoopThread(name: "never watched") { thread in
            let loop = thread.runLoop
            try await loop.onActor { _ in
                let connections = try madeElsewhere { try loop.connections(at: .ownLoopback) { _ in } }
                connections.close()
                // A child that another thread starts has a copy until it executes its program.
                await yieldUntil { (try? loop.connections(at: connections.localAddress) { _ in }) != nil }
            }
        }
    }

    @Test func `an iteration that is left early takes no connection with it`() async throws {
        try await withListening { connections in
            let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
            for try await _ in connections { break }
            for try await _ in connections { break }
            _ = try await connections.accept(timeout: .seconds(600))
            withExtendedLifetime(clients) {}
        }
    }

    @Test func `accepting throws at its deadline, and goes on later`() async throws {
        try await withListening { connections in
            let error = await #expect(throws: IOError.self) {
                try await connections.accept(timeout: .milliseconds(2))
            }
            #expect(error?.errno == .timedOut)
            #expect(error?.operation == .accept)
            let client = try SocketPeer(connectedTo: connections.localAddress)
            _ = try await connections.accept(timeout: .seconds(600))
            withExtendedLifetime(client) {}
        }
    }

    @Test(arguments: [true, false])
    func `a task that is cancelled at any moment takes no connection with it`(isOnLoop: Bool) async throws {
        try await withRunLoopThread(name: "cancelled") { thread in
            let loop = thread.runLoop
            let connections = try loop.connections(at: .ownLoopback) { Issue.record("\($0)") }
            for round in 0..<200 {
                let task = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                    do {
                        _ = try await connections.accept()
                        return true
                    } catch {
                        #expect(error is CancellationError)
                        return false
                    }
                }
                for _ in 0..<round % 5 { await Task.yield() }
                let client = try SocketPeer(connectedTo: connections.localAddress)
                task.cancel()
                if await !task.value { _ = try await connections.accept(timeout: .seconds(600)) }
                withExtendedLifetime(client) {}
            }
        }
    }

    @Test func `cancelling the task ends its iteration, and the socket goes on listening`() async throws {
        try await withListening { connections in
            let task = Task {
                for try await _ in connections { Issue.record("a connection") }
            }
            await Task.yield()
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            let client = try SocketPeer(connectedTo: connections.localAddress)
            _ = try await connections.accept()
            withExtendedLifetime(client) {}
        }
    }

    @Test func `an iterator that has ended or thrown leaves the socket to others`() async throws {
        try await withListening { connections in
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
            withExtendedLifetime(client) {}
        }
    }

    @Test func `closing ends the iteration, and the socket listens no more`() async throws {
        try await withListening { connections in
            let task = Task { for try await _ in connections { Issue.record("a connection") } }
            await Task.yield()
            connections.close()
            try await task.value
            #expect(isRefused(connections.localAddress))
            let error = await #expect(throws: IOError.self) { try await connections.accept() }
            #expect(error?.errno == .badFileDescriptor)
        }
    }

    @Test func `closing takes effect at once, although the loop has not closed the socket`() async throws {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let connections = try loop.connections(at: .ownLoopback) { Issue.record("\($0)") }
            let client = try SocketPeer(connectedTo: connections.localAddress)
            let trace = Trace()
            try onAThread {
                connections.close()
                Task.immediate {
                    let error = await thrownError { _ = try await connections.accept() }
                    trace(error?.errno == .badFileDescriptor ? "closed" : "\(error, default: "accepted")")
                }
            }
            while trace.all.isEmpty { loop.poll() }
            #expect(trace.all == ["closed"])
            withExtendedLifetime(client) {}
        }
    }

    @Test func `no task accepts once closing has returned on another thread`() throws {
        var late = 0
        for _ in 0..<50 { late += try connectionsAcceptedAfterClosing() }
        #expect(late == 0)
    }

    @Test func `draining after closing accepts nothing`() throws {
        let connections = try RunLoop.current.connections(at: .ownLoopback) { Issue.record("\($0)") }
        let client = try SocketPeer(connectedTo: connections.localAddress)
        try onAThread {
            connections.close()
            connections.drain()
            #expect(!connections.acceptsNow())
        }
        withExtendedLifetime(client) {}
    }

    @Test func `draining accepts the backlog, then ends the iteration and closes the socket`() async throws {
        try await withListening { connections in
            let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
            connections.drain()
            var count = 0
            for try await _ in connections { count += 1 }
            #expect(count == 3)
            #expect(isRefused(connections.localAddress))
            withExtendedLifetime(clients) {}
        }
    }

    @Test(arguments: [true, false])
    func `draining ends an iteration that waits`(isOnLoop: Bool) async throws {
        try await withRunLoopThread(name: "drained") { thread in
            let loop = thread.runLoop
            let connections = try loop.connections(at: .ownLoopback) { Issue.record("\($0)") }
            let task = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                for try await _ in connections { Issue.record("a connection") }
            }
            for _ in 0..<5 { await Task.yield() }
            connections.drain()
            try await task.value
            #expect(isRefused(connections.localAddress))
        }
    }

    @Test(arguments: [true, false])
    func `closing removes the socket's file at once, although the loop does not run`(
        isReleased: Bool
    ) async throws {
        let folder = TemporaryFolder()
        let address = try SocketAddress(unixPath: folder.path("socket"))
        try await onItsOwnThread {
            var connections: Listener.Connections? = try RunLoop.current.connections(at: address) { _ in }
            #expect(folder.names == ["socket"])
            let closing = Shared(connections)
            connections = nil
            try onAThread { if isReleased { closing.value = nil } else { closing.value?.close() } }
            #expect(folder.names == [])
            // Another server may take the path before the loop closes the socket.
            let next = try RunLoop.current.connections(at: address) { _ in }
            RunLoop.current.poll()
            #expect(folder.names == ["socket"])
            next.close()
        }
    }

    @Test func `releasing the connections closes the socket`() async throws {
        let folder = TemporaryFolder()
        let path = folder.path("socket")
        try await withRunLoopThread(name: "released") { thread in
            let address = try SocketAddress(unixPath: path)
            for try await _ in try connected(thread.runLoop.connections(at: address) { _ in }) { break }
            try await thread.runLoop.waitForPass()
            #expect(access(path, F_OK) != 0)
        }
    }

    @Test func `the iteration ends with the loop's thread`() async throws {
        let thread = try RunLoopThread(name: "ending")
        let connections = try thread.runLoop.connections(at: .ownLoopback) { Issue.record("\($0)") }
        let task = Task {
            for try await _ in connections { return false }
            return !Task.isCancelled
        }
        await Task.yield()
        try await onItsOwnThread { thread.stop() }
        #expect(try await task.value)
    }

    @Test func `a task waits while the loop runs in another mode`() async throws {
        try await withRunLoopThread(name: "modes") { thread in
            let loop = thread.runLoop
            let connections = try loop.connections(at: .ownLoopback, inModes: [.custom]) { _ in }
            let isAccepted = Shared(false)
            let task = Task(executorPreference: loop.executor()) {
                _ = try await connections.accept()
                isAccepted.value = true
            }
            try await loop.waitForPass()
            let client = try SocketPeer(connectedTo: connections.localAddress)
            for _ in 0..<10 { try await loop.waitForPass() }
            #expect(!isAccepted.value)
            while !isAccepted.value { try await loop.onActor { _ in loop.pollOnce(.custom) } }
            try await task.value
            withExtendedLifetime(client) {}
        }
    }

    @Test func `a second task that accepts traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "two")
            let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: 0)) { _ in }
            await withTaskGroup { group in
                for _ in 0..<2 { group.addTask { _ = try? await connections.accept() } }
            }
        }
        #expect(result.message.contains("Two tasks iterate over the same events"))
    }

    @Test func `without descriptors accepting backs off, reports it, and loses no client`() async {
        await #expect(processExitsWith: .success) {
            let faults = Shared<[IOError]>([])
            let thread = try RunLoopThread(name: "faults")
            let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: 0)) { fault in
                faults.update { $0.append(fault) }
            }
            let client = try SocketPeer(connectedTo: connections.localAddress)
            var held: [CInt] = []
            var limit = rlimit(rlim_cur: 64, rlim_max: 64)
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            while case let number = dup(0), number >= 0 { held.append(number) }
            let task = Task { _ = try await connections.accept() }
            while faults.value.isEmpty { await Task.yield() }
            for number in held { close(number) }
            try await task.value
            guard faults.value.map(\.errno) == [.tooManyOpenFiles] else { exit(1) }
            withExtendedLifetime(client) {}
            exit(0)
        }
    }
}

/// Calls `body` with connections of a thread's loop.
private func withListening(
    _ body: nonisolated(nonsending) (Listener.Connections) async throws -> Void
) async throws {
    try await withRunLoopThread(name: "listening") { thread in
        try await body(thread.runLoop.connections(at: .ownLoopback) { Issue.record("\($0)") })
    }
}

/// Closes connections on one thread while another one accepts, and returns how many were accepted after that. The calling
/// thread's loop does not run meanwhile: it would close the socket.
private func connectionsAcceptedAfterClosing() throws -> Int {
    let host = try SocketPeer(listeningAt: .ownLoopback)
    let descriptor = FileDescriptor(rawValue: try SystemCall.make { dup(host.number) })
    let connections = try RunLoop.current.connections(descriptor: descriptor) { _ in }
    let clients = try (0..<30).map { _ in try SocketPeer(connectedTo: host.localAddress) }
    let left = Shared(0)
    let closing = try JoinableThread {
        waitUntil { host.backlog < 25 }
        connections.close()
        left.value = host.backlog
    }
    let accepting = try JoinableThread { while connections.acceptsNow() {} }
    closing.join()
    accepting.join()
    defer { RunLoop.current.poll() }
    return withExtendedLifetime(clients) { left.value - host.backlog }
}

extension SocketPeer {
    /// How many connections wait to be accepted.
    fileprivate var backlog: Int {
        var info = tcp_info()
        var size = socklen_t(MemoryLayout<tcp_info>.size)
        getsockopt(number, CInt(IPPROTO_TCP), TCP_INFO, &info, &size)
        return Int(info.tcpi_unacked)
    }
}

extension Listener.Connections {
    /// Accepts a connection without waiting; false if there is none.
    fileprivate func acceptsNow() -> Bool {
        let isAccepted = Shared(false)
        Task.immediate { isAccepted.value = (try? await accept(timeout: .zero)) != nil }
        return isAccepted.value
    }
}

/// `connections`, with a client.
private func connected(_ connections: Listener.Connections) throws -> Listener.Connections {
    _ = try SocketPeer(connectedTo: connections.localAddress)
    return connections
}

extension RunLoop {
    /// Polls `mode` once, in a synchronous frame of asynchronous code.
    fileprivate func pollOnce(_ mode: Mode) { _ = poll(mode) }
}
