import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Closing, draining, releasing and ending, inside and outside of handlers, with connections pending.
@Suite(.runLoop) struct ListenerLifetimeTests {
    private let loop = RunLoop.current

    @Test func `closing in the handler keeps the closure until it returns`() throws {
        let freed = Shared(false)
        var inside: [Bool] = []
        let listener = try addListener(canary: AtEnd { freed.value = true }) { listener, _ in
            listener.close()
            listener.close()
            inside.append(freed.value || listener.isValid)
        }
        try withClients(3, of: listener) { _ in #expect(loop.run(in: .default) == .finished) }
        #expect(inside == [false])
        #expect(freed.value)
    }

    @Test func `closing disconnects the clients in the backlog`() throws {
        let listener = try addListener { _, _ in Issue.record("called") }
        try withClients(1, of: listener) { clients in
            listener.close()
            var byte: UInt8 = 0
            #expect(throws: Errno.connectionReset) {
                try SystemCall.make { read(clients[0].number, &byte, 1) }
            }
        }
        #expect(isRefused(listener.localAddress))
        #expect(loop.poll() == .finished)
    }

    @Test func `a descriptor number reused within a pass gets no event of the closed listener`() async {
        // In a process of its own, in which no other test takes the number that is closed.
        await #expect(processExitsWith: .success) {
            try onAThread {
                let (loop, pipe) = (RunLoop.current, try TestPipe())
                var (listeners, strangers): ([Listener], [DescriptorSource]) = ([], [])
                var (calls, strangerCalls) = (0, 0)
                for index in 0..<2 {
                    let listener = try addListener { _, _ in
                        calls += 1
                        let number = listeners[1 - index].descriptor.rawValue
                        for listener in listeners { listener.close() }
                        precondition(fcntl(number, F_GETFD) == -1, "the number is still in use")
                        precondition(dup2(pipe.readEnd.rawValue, number) == number)
                        let copy = FileDescriptor(rawValue: number)
                        strangers.append(
                            DescriptorSource(copy, for: .readable) { _, _ in strangerCalls += 1 })
                        try? loop.add(strangers[0], forMode: .default)
                    }
                    listeners.append(listener)
                }
                let clients = try listeners.map { try SocketPeer(connectedTo: $0.localAddress) }
                for _ in 0..<3 { loop.poll() }
                try #require(calls == 1 && strangerCalls == 0)
                pipe.put()
                loop.poll()
                try #require(strangerCalls == 1)
                for stranger in strangers { stranger.cancel() }
                withExtendedLifetime(clients) {}
            }
        }
    }

    @Test func `the loop retains a listener while it is in a mode`() throws {
        let freed = Shared(false)
        var calls = 0
        weak let listener = try addListener(canary: AtEnd { freed.value = true }) { listener, _ in
            calls += 1
            if calls == 2 { RunLoop.current.remove(listener, forMode: .default) }
        }
        let address = try #require(listener?.localAddress)
        let clients = try (0..<2).map { _ in try SocketPeer(connectedTo: address) }
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == 2)
        #expect(freed.value && listener == nil)
        #expect(isRefused(address))
        withExtendedLifetime(clients) {}
    }

    @Test func `a listener in no loop is closed when it is released`() throws {
        let freed = Shared(false)
        var listener: Listener? = try .init(.ownLoopback) {
            [canary = AtEnd { freed.value = true }] _, _ in
            withExtendedLifetime(canary) {}
        }
        let address = try #require(listener?.localAddress)
        listener = nil
        #expect(freed.value)
        #expect(isRefused(address))
    }

    @Test(arguments: [RunLoop.Mode.default, .common, .custom])
    func `the end of the loop's thread closes its listeners and releases their closures`(mode: RunLoop.Mode)
        throws
    {
        let freed = Shared(false)
        let address = Shared<SocketAddress?>(nil)
        try onAThread {
            let listener = try addListener(.ownLoopback, mode, canary: AtEnd { freed.value = true }) { _, _ in
            }
            address.value = listener.localAddress
        }
        #expect(freed.value)
        #expect(isRefused(try #require(address.value)))
    }

    @Test func `a nested run does not call the handler inside itself`() throws {
        var (depth, deepest, calls) = (0, 0, 0)
        let listener = try addListener { [loop] listener, _ in
            calls += 1
            depth += 1
            deepest = max(deepest, depth)
            for _ in 0..<3 { loop.poll() }
            depth -= 1
            if calls == 3 { listener.close() }
        }
        try withClients(3, of: listener) { _ in #expect(loop.run(in: .default) == .finished) }
        #expect(calls == 3)
        #expect(deepest == 1)
    }

    @Test func `a listener closed in a nested run accepts nothing more`() throws {
        var calls = 0
        let listener = try addListener { [loop] listener, _ in
            calls += 1
            loop.perform(order: 0) { listener.close() }
            loop.poll()
        }
        try withClients(3, of: listener) { _ in #expect(loop.run(in: .default) == .finished) }
        #expect(calls == 1)
    }

    @Test func `closing while connections arrive ends the callbacks`() throws {
        for _ in 0..<20 {
            var (calls, isClosed) = (0, false)
            let listener = try addListener { listener, _ in
                #expect(!isClosed)
                calls += 1
                guard calls == 20 else { return }
                listener.close()
                isClosed = true
            }
            let address = listener.localAddress
            let clients = try JoinableThread(name: "clients") {
                while (try? SocketPeer(connectedTo: address)) != nil {}
            }
            #expect(loop.run(in: .default) == .finished)
            clients.join()
            #expect(calls == 20)
        }
    }

    @Test func `using a listener on another thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let listener = try Listener(.ownLoopback) { _, _ in }
                try RunLoop.current.add(listener, forMode: .default)
                let shared = Carrier(listener)
                try onAThread { shared.value.close() }
            }
        }
        #expect(result.message.contains("thread"))
    }

    // MARK: Draining, and the backlog

    @Test(arguments: [false, true])
    func `draining accepts all pending connections and then closes`(isInLoop: Bool) throws {
        let count = 3 * connectionsPerPass
        let freed = Shared(false)
        var calls = 0
        let listener = try addListener(canary: AtEnd { freed.value = true }) { _, _ in calls += 1 }
        if !isInLoop { loop.remove(listener, forMode: .default) }
        try withClients(count, of: listener) { _ in
            listener.drain()
            #expect(calls == count)
            #expect(!listener.isValid && freed.value)
            #expect(isRefused(listener.localAddress))
            #expect(loop.poll() == .finished && calls == count)
        }
    }

    @Test(arguments: [false, true])
    func `draining in the handler starts when the handler returns`(isNested: Bool) throws {
        let count = 2 * connectionsPerPass
        var (calls, depth) = (0, 0)
        let listener = try addListener { [loop] listener, _ in
            calls += 1
            depth += 1
            #expect(depth == 1)
            if calls == 1, isNested {
                loop.perform(order: 0) { listener.drain() }
                loop.poll()
            } else if calls == 1 {
                listener.drain()
            }
            #expect(!listener.isValid)
            depth -= 1
        }
        try withClients(count, of: listener) { _ in #expect(loop.run(in: .default) == .finished) }
        #expect(calls == count)
        #expect(isRefused(listener.localAddress))
    }

    @Test func `closing while draining ends the callbacks`() throws {
        var calls = 0
        let listener = try addListener { [loop] listener, _ in
            calls += 1
            loop.poll()  // would find it ready, were it still watched
            listener.close()
        }
        try withClients(3, of: listener) { _ in listener.drain() }
        #expect(calls == 1)
    }

    @Test func `a connection reset before it is accepted does not affect others`() throws {
        var bytes: [[UInt8]] = []
        let listener = try addListener { _, connection in
            connection.input.open()
            bytes.append(connection.input.read(upTo: 1))
        }
        try withClients(4, of: listener) { clients in
            for client in clients.dropLast() { client.reset() }
            clients[3].send([7])
            loop.serve { bytes.last == [7] }
        }
        listener.close()
    }

    @Test func `clients beyond the backlog wait until others are accepted`() throws {
        var calls = 0
        let listener = try Listener(.unixUnnamed, options: .init(backlog: 1)) { _, _ in calls += 1 }
        try loop.add(listener, forMode: .default)
        try withClients(2, of: listener) { _ in
            #expect(throws: Errno.resourceTemporarilyUnavailable) {
                try SocketPeer(connectedTo: listener.localAddress, isBlocking: false)
            }
            loop.poll()
            #expect(calls == 2)
            _ = try SocketPeer(connectedTo: listener.localAddress, isBlocking: false)
        }
        listener.close()
    }
}
