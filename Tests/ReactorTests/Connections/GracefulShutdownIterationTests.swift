import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What ends when a graceful shutdown begins: iterations, and waits between messages.
@Suite(.runLoop) struct GracefulShutdownIterationTests {
    private let home = LoopThread()

    private func connections() throws -> Listener.Connections {
        try home.loop.connections(at: .ownLoopback) { Issue.record("\($0)") }
    }

    // MARK: Iterations

    enum Elements: CaseIterable {
        case lines, messages

        /// The first element of `connection` that comes before the shutdown; then `body` is called, and what follows must be
        /// the end.
        func first(of connection: Connection, _ shutdown: GracefulShutdown, then body: () -> Void)
            async throws -> String?
        {
            switch self {
            case .lines:
                var elements = connection.lines(shutdown: shutdown).makeAsyncIterator()
                let first = try await elements.next()
                body()
                #expect(try await elements.next() == nil)
                return first
            case .messages:
                var elements = connection.messages(.delimiter(), shutdown: shutdown).makeAsyncIterator()
                let first = try await elements.next()
                body()
                #expect(try await elements.next() == nil)
                return first.map { String(decoding: $0, as: UTF8.self) }
            }
        }
    }

    @Test(arguments: Elements.allCases)
    func `an iteration ends when the shutdown begins, and leaves what has come`(_ elements: Elements)
        async throws
    {
        try await home.loop.withGracefulShutdown(on: []) { shutdown in
            let (number, peer) = try socketPair()
            let connection = Connection(descriptor: FileDescriptor(rawValue: number))
            let client = Connection(descriptor: FileDescriptor(rawValue: peer))
            try await client.write("a\nb\nc")
            let first = try await elements.first(of: connection, shutdown) { shutdown.begin() }
            #expect(first == "a")
            #expect(try await connection.read(exactly: 3) == Array("b\nc".utf8))
            #expect(try await elements.first(of: connection, shutdown) {} == nil)
        }
    }

    @Test(arguments: Elements.allCases)
    func `an iteration that waits ends when the shutdown begins`(_ elements: Elements) async throws {
        try await home.loop.withGracefulShutdown(on: []) { shutdown in
            let (number, peer) = try socketPair()
            let connection = Connection(descriptor: FileDescriptor(rawValue: number))
            let client = Connection(descriptor: FileDescriptor(rawValue: peer))
            let isBegun = Answer<Void>()
            let reading = Task(executorPreference: home.thread.executor) {
                isBegun.give(())
                return try await elements.first(of: connection, shutdown) {}
            }
            isBegun.wait()
            waitUntil { home.loop.isWaiting }
            shutdown.begin()
            #expect(try await reading.value == nil)
            try await client.write("later")
            #expect(try await connection.read(exactly: 5) == Array("later".utf8))
        }
    }

    @Test func `a part of a line that has come before the shutdown stays with the stream`() async throws {
        try await home.loop.withGracefulShutdown(on: []) { shutdown in
            let (number, peer) = try socketPair()
            let connection = Connection(descriptor: FileDescriptor(rawValue: number))
            let client = Connection(descriptor: FileDescriptor(rawValue: peer))
            try await client.write("whole\npart")
            let isRead = Answer<String?>()
            let reading = Task(executorPreference: home.thread.executor) {
                var lines = connection.lines(shutdown: shutdown).makeAsyncIterator()
                isRead.give(try await lines.next())
                return try await lines.next()
            }
            #expect(isRead.wait() == "whole")
            waitUntil { home.loop.isWaiting }
            shutdown.begin()
            #expect(try await reading.value == nil)
            #expect(try await connection.read(exactly: 4) == Array("part".utf8))
        }
    }

    // MARK: Waits between messages

    @Test func `an idle wait ends when the shutdown begins, and an answer is written first`() async throws {
        let (connections, loop, begun) = (try connections(), home.loop, Answer<GracefulShutdown>())
        let isBusy = Answer<Void>()
        let server = Task {
            try await loop.withGracefulShutdown(on: [], grace: .seconds(600)) { shutdown in
                begun.give(shutdown)
                try await connections.run { connection in
                    while let request = try await shutdown.cancelWhenBegun({
                        try await connection.read(until: [10])
                    }) {
                        if request == Array("slow".utf8) {
                            isBusy.give(())
                            try await shutdown.waitUntilBegun()
                            #expect(!Task.isCancelled)
                        }
                        try await connection.write(request)
                    }
                }
            }
        }
        let idle = try SocketPeer(connectedTo: connections.localAddress)
        idle.send("quick\n")
        #expect(idle.receive(5) == Array("quick".utf8))
        let busy = try SocketPeer(connectedTo: connections.localAddress)
        busy.send("slow\nnext\n")
        isBusy.wait()
        begun.wait().begin()
        #expect(idle.receiveToEnd() == [])
        #expect(busy.receiveToEnd() == Array("slow".utf8))
        _ = try await server.value
    }

    @Test func `an operation that has ended before the shutdown returns or throws as usual`() async throws {
        try await home.loop.withGracefulShutdown(on: []) { shutdown in
            let (value, none): (Int, Int?) = (
                try await shutdown.cancelWhenBegun { 7 }, try await shutdown.cancelWhenBegun { nil }
            )
            let error = await thrownError { try await shutdown.cancelWhenBegun { throw Errno.ioError } }
            #expect(value == 7 && none == nil && error as? Errno == .ioError)
            #expect(!shutdown.hasBegun)
            shutdown.begin()
            let isCancelled = try await shutdown.cancelWhenBegun { Task.isCancelled }
            #expect(isCancelled)
        }
    }

    @Test func `a cancelled task does not wait for the beginning`() async throws {
        try await home.loop.withGracefulShutdown(on: []) { shutdown in
            let wait = Task { try await shutdown.waitUntilBegun() }
            wait.cancel()
            let waitError = await thrownError { try await wait.value }
            let operation = Task {
                try await shutdown.cancelWhenBegun { try await shutdown.waitUntilBegun() }
            }
            operation.cancel()
            let operationError = await thrownError { try await operation.value }
            #expect(waitError is CancellationError && operationError is CancellationError)
        }
    }
}
