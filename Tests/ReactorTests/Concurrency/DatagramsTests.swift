import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct DatagramsTests {
    private let home = LoopThread()
    private var loop: RunLoop { home.loop }

    /// A socket that is connected to another one, which receives what it sends.
    private func makePair(_ kind: DatagramKind = .abstract) throws -> (
        DatagramSocket.Datagrams, to: DatagramSocket.Datagrams
    ) {
        let receiver = try loop.datagrams(boundTo: kind.freshAddress())
        let sender = try loop.datagrams(connectedTo: receiver.localAddress, boundTo: kind.freshAddress())
        return (sender, receiver)
    }

    @Test(arguments: DatagramKind.allCases, [true, false])
    func `tasks send and receive datagrams`(kind: DatagramKind, isOnLoop: Bool) async throws {
        let (client, server) = try makePair(kind)
        let echo = Task(executorPreference: isOnLoop ? home.executor : nil) {
            for try await message in server {
                #expect(home.loop.isCurrent == isOnLoop)
                if message.bytes.isEmpty { break }
                try await server.send(message.bytes, to: message.metadata.sender)
            }
        }
        for text in ["żółw", "a", "b"] {
            try await client.send(text)
            let answer = try await client.receive()
            #expect(answer.bytes == Array(text.utf8))
            #expect(answer.metadata.sender == server.localAddress)
        }
        try await client.send([])
        try await echo.value
    }

    @Test func `tasks pass descriptors over a Unix-domain socket, and over no other`() async throws {
        var options = DatagramSocket.Options()
        options.descriptorLimit = 2
        let receiver = try loop.datagrams(boundTo: DatagramKind.path.freshAddress(), options: options)
        let sender = try loop.datagrams(connectedTo: receiver.localAddress)
        let pipe = try FileDescriptor.pipe()
        try await sender.send([7], descriptors: [pipe.writeEnd])
        try pipe.writeEnd.close()
        let message = try await receiver.receive()
        let passed = try #require(message.metadata.descriptors.first)
        #expect(message.bytes == [7] && message.metadata.descriptors.count == 1)
        try passed.closeAfter { _ = try passed.writeAll("text".utf8) }
        #expect(InputStream(descriptor: pipe.readEnd, closeWhenDone: true).readAll() == "text")
        let other = try loop.datagrams(boundTo: .ipv4Loopback(port: 0))
        let error = await thrownError {
            try await other.send([0], to: other.localAddress, descriptors: [.standardInput])
        }
        #expect(error?.errno == .invalidArgument)
    }

    @Test func `an error of the kernel ends the iteration, and not the socket`() async throws {
        // An address of its own: another test's socket may get the port of a closed one.
        let server = try loop.datagrams(boundTo: #require(SocketAddress("127.0.0.2", port: 0)))
        let client = try loop.datagrams(connectedTo: server.localAddress)
        let address = server.localAddress
        server.close()
        await home.pass()
        let refusal = await thrownError {
            try await client.send([0])
            for try await _ in client {}
        }
        #expect(refusal as? IOError == IOError(.receive, "\(address)", .connectionRefused))
        let again = try loop.datagrams(boundTo: address)
        try await again.send([1], to: client.localAddress)
        #expect(try await client.receive().bytes == [1])
    }

    // MARK: Room

    @Test func `sending waits for room, until its deadline, and all that was sent arrives`() async throws {
        let (sender, receiver) = try makePair()
        let sent = try await sender.fill()
        let start = Deadline.now
        let error = await thrownError { try await sender.send([1], timeout: .milliseconds(2)) } as? IOError
        #expect(error?.errno == .timedOut && error?.operation == "send")
        #expect(start.duration(to: .now) >= .milliseconds(2))
        let more = Task {
            for _ in 0..<sent { try await sender.send([1], timeout: .seconds(600)) }
        }
        for _ in 0..<2 * sent { _ = try await receiver.receive(timeout: .seconds(600)) }
        try await more.value
    }

    /// The kernel does not report the room of a receiver to a sender that is not connected to it.
    @Test func `a sender that is not connected waits for the receiver's room until its deadline`()
        async throws
    {
        let receiver = try loop.datagrams(boundTo: DatagramKind.path.freshAddress())
        let sender = try loop.datagrams(boundTo: DatagramKind.path.freshAddress())
        let address = receiver.localAddress
        var count = 0
        let error = await thrownError {
            while true {
                try await sender.send([UInt8(truncatingIfNeeded: count)], to: address, timeout: .zero)
                count += 1
            }
        }
        #expect((error as? IOError)?.reason == .waitTimedOut)
        let start = Deadline.now
        let late = await thrownError { try await sender.send([1], to: address, timeout: .milliseconds(2)) }
        #expect((late as? IOError)?.reason == .waitTimedOut)
        #expect(start.duration(to: .now) >= .milliseconds(2))
        let last = count
        let more = Task { try await sender.send([UInt8(truncatingIfNeeded: last)], to: address) }
        for number in 0...last {
            #expect(try await receiver.receive().bytes == [UInt8(truncatingIfNeeded: number)])
        }
        try await more.value
    }

    @Test func `any number of tasks wait for room, and each sends or ends on its own`() async throws {
        let (sender, receiver) = try makePair()
        let sent = try await sender.fill()
        // The first one waits for the kernel, and the others for it.
        let cancelled = (0..<4).map { _ in Task { try await sender.send([1]) } }
        let late = (0..<4).map { _ in Task { try await sender.send([2], timeout: .milliseconds(2)) } }
        let senders = (0..<20).map { _ in Task { try await sender.send([3], timeout: .seconds(600)) } }
        for task in late { await #expect(throws: IOError.self) { try await task.value } }
        for task in cancelled { task.cancel() }
        for task in cancelled { await #expect(throws: CancellationError.self) { try await task.value } }
        var bytes: [UInt8] = []
        for _ in 0..<sent + senders.count { bytes += try await receiver.receive().bytes }
        #expect(bytes == [UInt8](repeating: 0, count: sent) + [UInt8](repeating: 3, count: senders.count))
        for task in senders { try await task.value }
    }

    @Test func `closing ends all tasks that wait for room`() async throws {
        let (sender, receiver) = try makePair()
        _ = try await sender.fill()
        let senders = (0..<8).map { _ in Task { try await sender.send([1]) } }
        // The loop watches the descriptor for each of them.
        await yieldUntil {
            loop.debugDescription.split(separator: "\n").count { $0.hasSuffix(": writable") } == senders.count
        }
        sender.close()
        for task in senders {
            #expect(await thrownError { try await task.value }?.errno == .badFileDescriptor)
        }
        withExtendedLifetime(receiver) {}
    }

    // MARK: The end

    @Test func `nothing is sent after closing, although the loop has not closed the socket`() throws {
        let datagrams = try RunLoop.current.datagrams(boundTo: .ipv4Loopback(port: 0))
        let errors = Trace()
        try onAThread {
            Task.immediate { try await datagrams.send([1], to: datagrams.localAddress) }
            datagrams.close()
            Task.immediate {
                let error = await thrownError { try await datagrams.send([2], to: datagrams.localAddress) }
                errors("\(error?.errno == .badFileDescriptor)")
            }
        }
        while errors.all.isEmpty { RunLoop.current.poll() }
        #expect(errors.all == ["true"])
    }

    @Test func `sending fails once the loop's thread has ended`() async throws {
        let datagrams = try loop.datagrams(boundTo: .ipv4Loopback(port: 0))
        await home.thread.shutDown()
        let error = await thrownError { try await datagrams.send([1], to: datagrams.localAddress) }
        #expect(error?.errno == .badFileDescriptor)
    }
}

extension DatagramSocket.Datagrams {
    /// Sends datagrams until there is no room, and returns their number.
    fileprivate func fill() async throws -> Int {
        var count = 0
        while await thrownError(by: { try await send([0], timeout: .zero) }) == nil { count += 1 }
        return count
    }
}

extension LoopThread {
    /// Waits until the loop has done what it was asked to do.
    func pass() async { await Resident(executor).perform {} }
}
