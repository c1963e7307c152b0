import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What holds for the sequences of a listening socket and of a datagram socket alike.
@Suite(.runLoop) struct SocketSequenceTests {
    private let home = LoopThread()

    private func makeFixture(_ kind: EventKind) throws -> EventFixture {
        try EventFixture(kind, on: home.loop)
    }

    @Test(arguments: EventKind.ofSockets, [true, false])
    func `a task that is cancelled at any moment takes no event with it`(kind: EventKind, isOnLoop: Bool)
        async throws
    {
        let fixture = try makeFixture(kind)
        for round in 0..<200 {
            let task = Task(executorPreference: isOnLoop ? home.executor : nil) { try await fixture.next() }
            for _ in 0..<round % 5 { await Task.yield() }
            try fixture.cause()
            task.cancel()
            do { #expect(try await task.value) } catch {
                #expect(error is CancellationError)
                try await fixture.take(timeout: .seconds(600))
            }
        }
        await #expect(throws: IOError.self) { try await fixture.take(timeout: .zero) }
    }

    @Test(arguments: EventKind.ofSockets)
    func `a wait ends at its deadline, and a later one has the event`(kind: EventKind) async throws {
        let fixture = try makeFixture(kind)
        let error = await thrownError { try await fixture.take(timeout: .milliseconds(2)) } as? IOError
        #expect(error?.errno == .timedOut)
        #expect(error?.operation == (kind == .connections ? "accept" : "receive"))
        try fixture.cause()
        try await fixture.take(timeout: .seconds(600))
    }

    @Test(arguments: EventKind.ofSockets)
    func `closing ends the iteration and later waits, and leaves the address to others`(kind: EventKind)
        async throws
    {
        let fixture = try makeFixture(kind)
        let task = Task { try await fixture.next() }
        await Task.yield()
        fixture.close()
        #expect(try await !task.value)
        #expect(await thrownError { try await fixture.take(timeout: nil) }?.errno == .badFileDescriptor)
        // A child that another test starts has a copy of the socket until it executes its program.
        await yieldUntil { (try? fixture.bindAgain(on: home.loop)) != nil }
    }

    @Test(arguments: EventKind.ofSockets)
    func `closing takes effect at once, although the loop has not closed the socket`(kind: EventKind) throws {
        let fixture = try EventFixture(kind, on: .current)
        try fixture.cause()
        let error = Shared<Errno?>(nil)
        try onAThread {
            fixture.close()
            Task.immediate { error.value = await thrownError { try await fixture.take(timeout: nil) }?.errno }
        }
        while error.value == nil { RunLoop.current.poll() }
        #expect(error.value == .badFileDescriptor)
    }

    /// The loop that the socket belongs to does not run meanwhile: it would close it.
    @Test(arguments: EventKind.ofSockets)
    func `no task takes an event once closing has returned on another thread`(kind: EventKind) throws {
        for _ in 0..<50 {
            let queue = try EventQueue(kind)
            let fixture = queue.fixture
            let left = Shared(0)
            let closing = try JoinableThread {
                waitUntil { queue.count < 25 }
                fixture.close()
                left.value = queue.count
            }
            let taking = try JoinableThread { while fixture.takesNow() {} }
            closing.join()
            taking.join()
            #expect(queue.count == left.value)
            RunLoop.current.poll()
        }
    }
}

extension EventFixture {
    func close() {
        connections?.close()
        datagrams?.close()
    }

    /// Waits for an event.
    nonisolated(nonsending) func take(timeout: Duration?) async throws {
        _ = try await connections?.accept(timeout: timeout)
        _ = try await datagrams?.receive(timeout: timeout)
    }

    /// Takes an event without waiting; false if there is none.
    func takesNow() -> Bool {
        let isTaken = Shared(false)
        Task.immediate { isTaken.value = await thrownError { try await take(timeout: .zero) } == nil }
        return isTaken.value
    }

    /// Binds another socket to the address.
    fileprivate func bindAgain(on loop: RunLoop) throws {
        if let connections { try loop.connections(at: connections.localAddress) { _ in }.close() }
        if let datagrams { try loop.datagrams(boundTo: datagrams.localAddress).close() }
    }
}

/// A socket of the calling thread's loop for which 30 events wait in the kernel.
private struct EventQueue: Sendable {
    let fixture: EventFixture
    /// The same socket.
    private let descriptor: FileDescriptor
    private let clients: [SocketPeer]

    init(_ kind: EventKind) throws {
        // Each datagram is received by a system call of its own.
        var options = DatagramSocket.Options()
        options.datagramLimit = 1 << 20
        fixture = try EventFixture(kind, on: .current, options: options)
        let address = (fixture.connections?.localAddress ?? fixture.datagrams?.localAddress)!
        descriptor = (0..<65_536).lazy.map { FileDescriptor(rawValue: $0) }.first {
            (try? SocketAddress.local(of: $0)) == address
        }!
        let isDatagrams = kind == .datagrams
        clients = try (0..<(isDatagrams ? 1 : 30)).map { _ in
            let client = try SocketPeer(family: AF_INET, isDatagrams ? SOCK_DGRAM : SOCK_STREAM)
            try client.connect(to: address)
            return client
        }
        // A datagram's size is the number of those behind it.
        if isDatagrams {
            for size in (1...30).reversed() { clients[0].send([UInt8](repeating: 0, count: size)) }
        }
    }

    /// How many events wait.
    var count: Int {
        if fixture.datagrams != nil { return unreadCount(of: descriptor) }
        var info = tcp_info()
        var size = socklen_t(MemoryLayout<tcp_info>.size)
        getsockopt(descriptor.rawValue, CInt(IPPROTO_TCP), TCP_INFO, &info, &size)
        return Int(info.tcpi_unacked)
    }
}
