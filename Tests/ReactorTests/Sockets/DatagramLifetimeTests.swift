import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Closing, removing, releasing and nesting, inside and outside of handlers.
@Suite(.runLoop) struct DatagramLifetimeTests {
    private let loop = RunLoop.current
    private let inflow = Inflow()

    /// A socket whose closure alone retains an object that notes its end.
    private func watchedSocket(
        at address: SocketAddress = .ipv4Loopback(port: 0), _ freed: Shared<Bool>,
        _ body: @escaping (DatagramSocket) -> Void = { _ in }
    ) throws -> DatagramSocket {
        let canary = AtEnd { freed.value = true }
        return try DatagramSocket(boundTo: address) { socket, _, _ in
            withExtendedLifetime(canary) { body(socket) }
        }
    }

    @Test func `closing in the handler drops received datagrams, and keeps the closure until it returns`()
        throws
    {
        let freed = Shared(false)
        var inside: [Bool] = []
        let server = try watchedSocket(freed) { socket in
            socket.close()
            socket.close()
            inside.append(freed.value || socket.isValid)
        }
        try loop.add(server, forMode: .common)
        let client = try sender(to: server.localAddress)
        for _ in 0..<3 { #expect(try client.send("x")) }
        #expect(loop.run(in: .default) == .finished)
        #expect(inside == [false])
        #expect(freed.value)
    }

    @Test
    func
        `a handler that closes ready sockets is the only one called, and new sockets get no event of theirs`()
        throws
    {
        var sockets: [DatagramSocket] = []
        var calls = 0
        for _ in 0..<8 {
            let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { [inflow] _, _, _ in
                calls += 1
                for socket in sockets { socket.close() }
                // These mostly get the numbers of those.
                sockets = sockets.compactMap { _ in try? inflow.socket() }
            }
            sockets.append(socket)
            try loop.add(socket, forMode: .default)
            #expect(try sender(to: socket.localAddress).send("x"))
        }
        for _ in 0..<3 { loop.poll() }
        #expect(calls == 1 && inflow.texts.isEmpty && inflow.events.isEmpty)
        for socket in sockets { #expect(try sender(to: socket.localAddress).send("y")) }
        inflow.wait(for: 8)
        #expect(inflow.texts == Array(repeating: "y", count: 8))
        for socket in sockets { socket.close() }
    }

    @Test func `a handler that runs the loop is not called inside itself, and datagrams stay in order`()
        throws
    {
        var depth = 0
        let server = try inflow.socket { [loop] _ in
            depth += 1
            #expect(depth == 1)
            for _ in 0..<3 { loop.poll() }
            depth -= 1
        }
        let client = try sender(to: server.localAddress)
        for text in ["1", "2", "3"] { #expect(try client.send(text)) }
        inflow.wait(for: 3)
        #expect(inflow.texts == ["1", "2", "3"])
        server.close()
    }

    @Test func `a socket that its handler removes delivers the rest in its next mode`() throws {
        let server = try inflow.socket { [loop] in loop.remove($0, forMode: .default) }
        let client = try sender(to: server.localAddress)
        for text in ["1", "2", "3"] { #expect(try client.send(text)) }
        #expect(runToTheEnd())
        #expect(inflow.texts == ["1"])
        try loop.add(server, forMode: .custom)
        #expect(loop.run(mode: .custom, before: .minutesAway))
        #expect(inflow.texts == ["1", "2", "3"])
        #expect(loop.passesInAWhile(in: .custom) < 10)
        #expect(try client.send("4"))
        loop.poll(.custom)
        #expect(inflow.texts.last == "4")
        server.close()
    }

    @Test func `the loop retains a socket while it is in a mode`() throws {
        let freed = Shared(false)
        var calls = 0
        weak let socket = try watchedSocket(freed) { [loop] socket in
            calls += 1
            if calls == 2 { loop.remove(socket, forMode: .default) }
        }.added(to: loop)
        let client = try sender(to: try #require(socket).localAddress)
        for text in ["1", "2"] { #expect(try client.send(text)) }
        #expect(runToTheEnd())
        #expect(calls == 2)
        #expect(freed.value && socket == nil)
    }

    @Test func `a socket in no loop is closed when it is released`() throws {
        let (freed, path) = (Shared(false), freshPath())
        var socket: DatagramSocket? = try watchedSocket(at: SocketAddress(unixPath: path), freed)
        #expect(socket?.isValid == true && exists(path))
        socket = nil
        #expect(freed.value && !exists(path))
    }

    @Test func `the end of the loop's thread closes its sockets and releases their closures there`() throws {
        let (path, threads) = (freshPath(), Shared<[UInt]>([]))
        try onAThread {
            threads.value = [UInt(pthread_self())]
            let canary = AtEnd { threads.update { $0.append(UInt(pthread_self())) } }
            let socket = try DatagramSocket(boundTo: SocketAddress(unixPath: path)) { _, _, _ in
                withExtendedLifetime(canary) {}
            }
            for mode in [RunLoop.Mode.common, .custom] { try RunLoop.current.add(socket, forMode: mode) }
            #expect(try sender(to: SocketAddress(unixPath: path)).send("unread"))
        }
        #expect(threads.value.count == 2 && Set(threads.value).count == 1)
        #expect(!exists(path))
    }

    @Test func `the methods of a closed socket throw`() throws {
        let socket = try silentSocket()
        let address = try socket.localAddress
        socket.close()
        #expect(!socket.isValid)
        let calls: [() throws -> Void] = [
            { _ = try socket.send("x", to: address) }, { _ = try socket.send("x") },
            { _ = try socket.localAddress },
            { _ = try socket.peerAddress }, { _ = try socket.descriptor },
            { try socket.setMulticastLoop(true) },
            { try socket.join(.ipv4(0xefff_0001, port: 0)) },
        ]
        for call in calls { #expect(throws: Errno.badFileDescriptor, performing: call) }
        try loop.add(socket, forMode: .default)
        #expect(!loop.contains(socket, forMode: .default))
        #expect(loop.poll() == .finished)
    }

    @Test func `closing removes the socket's file, unless another one has replaced it`() throws {
        let path = freshPath()
        let address = try SocketAddress(unixPath: path)
        let first = try silentSocket(at: address)
        #expect(throws: Errno.addressInUse) { try silentSocket(at: address) }
        #expect(exists(path))
        let kept = freshPath()
        #expect(rename(path.string, kept.string) == 0)  // so that its number is not given to the next
        let second = try silentSocket(at: address)
        first.close()
        #expect(exists(path))
        second.close()
        #expect(!exists(path))
        unlink(kept.string)
    }

    @Test func `thousands of sockets can be opened and closed`() throws {
        for _ in 0..<2000 {
            let freed = Shared(false)
            let socket = try watchedSocket(freed).added(to: loop)
            socket.close()
            #expect(freed.value)
        }
        #expect(loop.poll() == .finished)
    }

    @Test func `using a socket on another thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let socket = try silentSocket()
                try RunLoop.current.add(socket, forMode: .default)
                let shared = Carrier(socket)
                try onAThread { _ = try shared.value.send([1]) }
            }
        }
        #expect(result.message.contains("thread"))
    }
}

extension DatagramSocket {
    fileprivate func added(to loop: RunLoop) throws -> DatagramSocket {
        try loop.add(self, forMode: .default)
        return self
    }
}
