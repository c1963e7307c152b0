import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Closing, releasing and ending, inside and outside of handlers.
@Suite(.runLoop) struct ListenerLifetimeTests {
    @Test func `closing in the handler keeps the closure until it returns`() throws {
        let freed = Shared(false)
        var inside: [Bool] = []
        let listener = try addListener(canary: AtEnd { freed.value = true }) { listener, _ in
            listener.close()
            listener.close()
            inside.append(freed.value || listener.isValid)
        }
        let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(inside == [false])
        #expect(freed.value)
        withExtendedLifetime(clients) {}
    }

    @Test func `closing disconnects the clients in the backlog`() throws {
        let listener = try addListener { _, _ in Issue.record("called") }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        listener.close()
        #expect(throws: Errno.connectionReset) { try client.descriptor.readFirst() }
        #expect(isRefused(listener.localAddress))
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test func `of two ready sockets, one that the other's handler closes is not called`() throws {
        var listeners: [Listener] = []
        var calls = 0
        for _ in 0..<2 {
            listeners.append(
                try addListener { _, _ in
                    calls += 1
                    for listener in listeners { listener.close() }
                })
        }
        let clients = try listeners.map { try SocketPeer(connectedTo: $0.localAddress) }
        RunLoop.current.poll()
        #expect(RunLoop.current.poll() == .finished)
        #expect(calls == 1)
        withExtendedLifetime(clients) {}
    }

    @Test func `a descriptor number reused within a pass gets no event of the closed listener`() async {
        // In a process of its own, in which no other test takes the number that is closed.
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                let (loop, pipe) = (RunLoop.current, try TestPipe())
                var listeners: [Listener] = []
                var strangers: [DescriptorSource] = []
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
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(calls == 2)
        #expect(freed.value)
        #expect(listener == nil)
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
        let thread = try JoinableThread(name: "ending") {
            let listener = try? addListener(
                .ownLoopback, mode, canary: AtEnd { freed.value = true }
            ) { _, _ in }
            address.value = listener?.localAddress
        }
        thread.join()
        #expect(freed.value)
        let known = try #require(address.value)
        #expect(isRefused(known))
    }

    @Test func `a nested run does not call the handler inside itself`() throws {
        var (depth, deepest, calls) = (0, 0, 0)
        let listener = try addListener { listener, _ in
            calls += 1
            depth += 1
            deepest = max(deepest, depth)
            for _ in 0..<3 { RunLoop.current.poll() }
            depth -= 1
            if calls == 3 { listener.close() }
        }
        let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(calls == 3)
        #expect(deepest == 1)
        withExtendedLifetime(clients) {}
    }

    @Test func `a listener closed in a nested run accepts nothing more`() throws {
        var calls = 0
        let listener = try addListener { listener, _ in
            calls += 1
            RunLoop.current.perform(order: 0) { listener.close() }
            RunLoop.current.poll()
        }
        let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(calls == 1)
        withExtendedLifetime(clients) {}
    }

    @Test func `closing while connections arrive ends the callbacks`() async throws {
        try await onItsOwnThread {
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
                #expect(RunLoop.current.run(in: .default) == .finished)
                clients.join()
                #expect(calls == 20)
            }
        }
    }

    @Test func `using a listener on another thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try await onItsOwnThread {
                let listener = try Listener(.ownLoopback) { _, _ in }
                try RunLoop.current.add(listener, forMode: .default)
                nonisolated(unsafe) let shared = listener
                try JoinableThread(name: "other") { shared.close() }.join()
            }
        }
        #expect(result.message.contains("Listener must be used on the loop's own thread"))
    }
}

extension FileDescriptor {
    fileprivate func readFirst() throws {
        _ = try withUnsafeTemporaryAllocation(byteCount: 1, alignment: 1) { try read(into: $0) }
    }
}
