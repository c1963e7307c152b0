import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Closing, removing, releasing and nesting, inside and outside of handlers.
@Suite(.runLoop) struct DatagramLifetimeTests {
    @Test func `closing in the handler drops received datagrams, and keeps the closure until it returns`()
        async throws
    {
        try await onItsOwnThread {
            let freed = Shared(false)
            let canary = AtEnd { freed.value = true }
            var inside: [Bool] = []
            let server = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { [canary] socket, _, _ in
                withExtendedLifetime(canary) {
                    socket.close()
                    socket.close()
                    inside.append(freed.value || socket.isValid)
                }
            }
            _ = consume canary
            try RunLoop.current.add(server, forMode: .common)
            let client = try sender(to: try server.localAddress)
            for _ in 0..<3 { #expect(try client.send("x")) }
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(inside == [false])
            #expect(freed.value)
        }
    }

    @Test func `of two ready sockets, one that the other's handler closes is not called`() throws {
        var sockets: [DatagramSocket] = []
        var calls = 0
        for _ in 0..<2 {
            let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in
                calls += 1
                for socket in sockets { socket.close() }
            }
            sockets.append(socket)
            try RunLoop.current.add(socket, forMode: .default)
            #expect(try sender(to: try socket.localAddress).send("x"))
        }
        RunLoop.current.poll()
        #expect(RunLoop.current.poll() == .finished)
        #expect(calls == 1)
    }

    @Test func `a socket created in the handler that closes others gets no event of theirs`() throws {
        let strangers = Inflow()
        var sockets: [DatagramSocket] = []
        for _ in 0..<8 {
            let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in
                for socket in sockets { socket.close() }
                // These mostly get the numbers of those.
                sockets = sockets.compactMap { _ in try? strangers.socket(at: .ipv4Loopback(port: 0)) }
            }
            sockets.append(socket)
            try RunLoop.current.add(socket, forMode: .default)
            #expect(try sender(to: try socket.localAddress).send("x"))
        }
        for _ in 0..<3 { RunLoop.current.poll() }
        #expect(strangers.texts.isEmpty)
        #expect(strangers.events.isEmpty)
        for socket in sockets { #expect(try sender(to: try socket.localAddress).send("y")) }
        strangers.wait(for: 8)
        #expect(strangers.texts == Array(repeating: "y", count: 8))
        for socket in sockets { socket.close() }
    }

    @Test func `a handler that runs the loop is not called inside itself, and datagrams stay in order`()
        async throws
    {
        try await onItsOwnThread {
            let inflow = Inflow()
            var depth = 0
            let server = try inflow.socket(at: .ipv4Loopback(port: 0)) { _ in
                depth += 1
                #expect(depth == 1)
                #expect(RunLoop.current.run(in: .default, until: .after(milliseconds: 3)) == .timedOut)
                depth -= 1
            }
            let client = try sender(to: try server.localAddress)
            for text in ["1", "2", "3"] { #expect(try client.send(text)) }
            inflow.wait(for: 3)
            #expect(inflow.texts == ["1", "2", "3"])
            server.close()
        }
    }

    @Test func `a socket that its handler removes delivers the rest in its next mode`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let inflow = Inflow()
            let server = try inflow.socket(at: .ipv4Loopback(port: 0)) { socket in
                loop.remove(socket, forMode: .default)
            }
            let client = try sender(to: try server.localAddress)
            for text in ["1", "2", "3"] { #expect(try client.send(text)) }
            #expect(runToTheEnd())
            #expect(inflow.texts == ["1"])
            try loop.add(server, forMode: .custom)
            #expect(loop.run(mode: .custom, before: .minutesAway))
            #expect(inflow.texts == ["1", "2", "3"])
            // And it is quiet when there is nothing more.
            #expect(loop.run(in: .custom, until: .after(milliseconds: 3)) == .timedOut)
            #expect(try client.send("4"))
            loop.poll(.custom)
            #expect(inflow.texts.last == "4")
            server.close()
        }
    }

    @Test func `the loop retains a socket while it is in a mode`()
        async throws
    {
        try await onItsOwnThread {
            let freed = Shared(false)
            var texts: [String] = []
            let address: SocketAddress
            weak var dropped: DatagramSocket?
            do {
                let canary = AtEnd { freed.value = true }
                let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { socket, bytes, _ in
                    withExtendedLifetime(canary) { texts.append(bytes.text) }
                    if texts.count == 2 { RunLoop.current.remove(socket, forMode: .default) }
                }
                dropped = socket
                try RunLoop.current.add(socket, forMode: .default)
                address = try socket.localAddress
            }
            #expect(dropped != nil)
            let client = try sender(to: address)
            for text in ["1", "2"] { #expect(try client.send(text)) }
            #expect(runToTheEnd())
            #expect(texts == ["1", "2"])
            #expect(freed.value)
            #expect(dropped == nil)
        }
    }

    @Test func `a socket in no loop is closed when it is released`() throws {
        let freed = Shared(false)
        let path = freshPath()
        do {
            let canary = AtEnd { freed.value = true }
            let socket = try DatagramSocket(boundTo: SocketAddress(unixPath: path)) { _, _, _ in
                withExtendedLifetime(canary) {}
            }
            #expect(socket.isValid)
            #expect(exists(path))
        }
        #expect(freed.value)
        #expect(!exists(path))
    }

    @Test func `the end of the loop's thread closes its sockets and releases their closures there`() throws {
        let path = freshPath()
        let freedOn = Shared<UInt>(0)
        let home = Shared<UInt>(0)
        let thread = try JoinableThread(name: "ending") {
            home.value = UInt(pthread_self())
            let canary = AtEnd { freedOn.value = UInt(pthread_self()) }
            #expect(throws: Never.self) {
                let socket = try DatagramSocket(boundTo: SocketAddress(unixPath: path)) { _, _, _ in
                    withExtendedLifetime(canary) {}
                }
                try RunLoop.current.add(socket, forMode: .common)
                try RunLoop.current.add(socket, forMode: .custom)
                #expect(try sender(to: SocketAddress(unixPath: path)).send("unread"))
            }
        }
        thread.join()
        #expect(freedOn.value == home.value)
        #expect(!exists(path))
    }

    @Test func `the methods of a closed socket throw`() throws {
        let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in }
        let address = try socket.localAddress
        socket.close()
        #expect(!socket.isValid)
        #expect(throws: Errno.badFileDescriptor) { try socket.send("x", to: address) }
        #expect(throws: Errno.badFileDescriptor) { try socket.send("x") }
        #expect(throws: Errno.badFileDescriptor) { try socket.localAddress }
        #expect(throws: Errno.badFileDescriptor) { try socket.peerAddress }
        #expect(throws: Errno.badFileDescriptor) { try socket.descriptor }
        #expect(throws: Errno.badFileDescriptor) { try socket.setMulticastLoop(true) }
        #expect(throws: Errno.badFileDescriptor) { try socket.join(.ipv4(0xefff_0001, port: 0)) }
        try RunLoop.current.add(socket, forMode: .default)
        #expect(!RunLoop.current.contains(socket, forMode: .default))
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test func `closing removes the socket's file, unless another one has replaced it`() throws {
        let path = freshPath()
        let address = try SocketAddress(unixPath: path)
        let first = try DatagramSocket(boundTo: address) { _, _, _ in }
        #expect(throws: Errno.addressInUse) { try DatagramSocket(boundTo: address) { _, _, _ in } }
        #expect(exists(path))
        let kept = freshPath()
        #expect(rename(path.string, kept.string) == 0)  // so that its number is not given to the next
        let second = try DatagramSocket(boundTo: address) { _, _, _ in }
        first.close()
        #expect(exists(path))
        second.close()
        #expect(!exists(path))
        unlink(kept.string)
    }

    @Test func `thousands of sockets can be opened and closed`() throws {
        let live = Shared(0)
        for _ in 0..<2000 {
            live.update { $0 += 1 }
            let canary = AtEnd { live.update { $0 -= 1 } }
            let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in
                withExtendedLifetime(canary) {}
            }
            try RunLoop.current.add(socket, forMode: .common)
            socket.close()
        }
        #expect(live.value == 0)
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test func `using a socket on another thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try await onItsOwnThread {
                let socket = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in }
                try RunLoop.current.add(socket, forMode: .default)
                let address = UInt(bitPattern: Unmanaged.passUnretained(socket).toOpaque())
                onThreads(1) { _ in
                    let pointer = UnsafeRawPointer(bitPattern: address)!
                    let socket = Unmanaged<DatagramSocket>.fromOpaque(pointer).takeUnretainedValue()
                    _ = try? socket.send([1])
                }
            }
        }
        #expect(result.message.contains("on the loop's own thread"))
    }
}
