import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct DatagramsTests {
    @Test(arguments: DatagramKind.allCases, [true, false])
    func `tasks send and receive datagrams`(kind: DatagramKind, isOnLoop: Bool) async throws {
        try await withRunLoopThread(name: "datagrams") { thread in
            let loop = thread.runLoop
            let server = try loop.datagrams(boundTo: kind.freshAddress())
            let client = try loop.datagrams(
                connectedTo: server.localAddress, boundTo: kind.freshAddress())
            let echo = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                for try await message in server {
                    #expect(loop.isCurrent == isOnLoop)
                    if message.bytes.isEmpty { break }
                    try await server.send(message.bytes, to: message.datagram.sender)
                }
            }
            for number in 0..<20 as Range<UInt8> {
                try await client.send([number])
                let answer = try await client.receive()
                #expect(answer.bytes == [number])
                #expect(answer.datagram.sender == server.localAddress)
            }
            try await client.send([])
            try await echo.value
        }
    }

    @Test func `a text is sent in UTF-8`() async throws {
        try await withPair { one, other in
            try await one.send("żółw", to: other.localAddress)
            #expect(try await other.receive().bytes == Array("żółw".utf8))
        }
    }

    @Test func `tasks pass descriptors over a Unix-domain socket, and over no other`() async throws {
        try await withRunLoopThread(name: "descriptors") { thread in
            let loop = thread.runLoop
            var options = DatagramSocket.Options()
            options.descriptorLimit = 2
            let receiver = try loop.datagrams(boundTo: DatagramKind.path.freshAddress(), options: options)
            let sender = try loop.datagrams(connectedTo: receiver.localAddress)
            let pipe = try FileDescriptor.pipe()
            try await sender.send([7], descriptors: [pipe.writeEnd])
            try pipe.writeEnd.close()
            let message = try await receiver.receive()
            let passed = try #require(message.datagram.descriptors.first)
            #expect(message.bytes == [7] && message.datagram.descriptors.count == 1)
            try passed.closeAfter { _ = try passed.writeAll("text".utf8) }
            #expect(InputStream(descriptor: pipe.readEnd, closeWhenDone: true).readAll() == "text")
            let other = try loop.datagrams(boundTo: .ipv4Loopback(port: 0))
            let error = await thrownError {
                try await other.send([0], to: other.localAddress, descriptors: [.standardInput])
            }
            #expect(error?.errno == .invalidArgument)
        }
    }

    @Test func `datagrams that a task does not take stay for the next`() async throws {
        try await withPair { one, other in
            for number in 0..<5 as Range<UInt8> { try await one.send([number], to: other.localAddress) }
            for try await message in other {
                #expect(message.bytes == [0])
                break
            }
            #expect(try await other.receive().bytes == [1])
            var bytes: [UInt8] = []
            for try await message in other {
                bytes += message.bytes
                if bytes.count == 3 { break }
            }
            #expect(bytes == [2, 3, 4])
        }
    }

    @Test func `receiving throws at its deadline, and goes on later`() async throws {
        try await withPair { one, other in
            let error = await #expect(throws: IOError.self) {
                try await other.receive(timeout: .milliseconds(2))
            }
            #expect(error?.errno == .timedOut)
            #expect(error?.operation == .receive)
            try await one.send([7], to: other.localAddress)
            #expect(try await other.receive(timeout: .seconds(600)).bytes == [7])
        }
    }

    @Test(arguments: [true, false])
    func `a task that is cancelled at any moment takes no datagram with it`(isOnLoop: Bool) async throws {
        try await withRunLoopThread(name: "cancelled") { thread in
            let loop = thread.runLoop
            let one = try loop.datagrams(boundTo: .ipv4Loopback(port: 0))
            let other = try loop.datagrams(boundTo: .ipv4Loopback(port: 0))
            for round in 0..<200 {
                let task = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                    do {
                        _ = try await other.receive()
                        return true
                    } catch {
                        #expect(error is CancellationError)
                        return false
                    }
                }
                for _ in 0..<round % 5 { await Task.yield() }
                try await one.send([1], to: other.localAddress)
                task.cancel()
                if await !task.value { _ = try await other.receive(timeout: .seconds(600)) }
            }
        }
    }

    @Test func `an error of the kernel ends the iteration, and not the socket`() async throws {
        try await withRunLoopThread(name: "refused") { thread in
            let server = try thread.runLoop.datagrams(boundTo: .ipv4Loopback(port: 0))
            let address = server.localAddress
            let client = try thread.runLoop.datagrams(connectedTo: address)
            server.close()
            try await thread.runLoop.waitForPass()
            #expect(await refusal(of: client).map { "\($0)" } == "receive at \(address): Connection refused")
            let again = try thread.runLoop.datagrams(boundTo: address)
            try await again.send([1], to: client.localAddress)
            #expect(try await client.receive().bytes == [1])
        }
    }

    @Test func `sending waits for room, until its deadline`() async throws {
        try await withRunLoopThread(name: "full") { thread in
            let loop = thread.runLoop
            let receiver = try loop.datagrams(boundTo: DatagramKind.abstract.freshAddress())
            let sender = try loop.datagrams(connectedTo: receiver.localAddress)
            var count = 0
            let error = await #expect(throws: IOError.self) {
                while true {
                    try await sender.send([UInt8](repeating: 0, count: 1000), timeout: .milliseconds(2))
                    count += 1
                }
            }
            #expect(error?.errno == .timedOut)
            #expect(error?.operation == .send)
            // Each of them arrives, and so do those that wait now.
            let sent = count
            let more = Task {
                for _ in 0..<sent { try await sender.send([1], timeout: .seconds(600)) }
            }
            for _ in 0..<2 * sent { _ = try await receiver.receive(timeout: .seconds(600)) }
            try await more.value
        }
    }

    @Test func `any number of tasks wait for room, and each sends or ends on its own`() async throws {
        try await withRunLoopThread(name: "full") { thread in
            let loop = thread.runLoop
            let receiver = try loop.datagrams(boundTo: DatagramKind.abstract.freshAddress())
            let sender = try loop.datagrams(connectedTo: receiver.localAddress)
            var sent = 0
            while await thrownError(by: { try await sender.send([0], timeout: .zero) }) == nil { sent += 1 }
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
    }

    @Test func `closing ends all tasks that wait for room`() async throws {
        try await withRunLoopThread(name: "full") { thread in
            let loop = thread.runLoop
            let receiver = try loop.datagrams(boundTo: DatagramKind.abstract.freshAddress())
            let sender = try loop.datagrams(connectedTo: receiver.localAddress)
            while await thrownError(by: { try await sender.send([0], timeout: .zero) }) == nil {}
            let senders = (0..<8).map { _ in Task { try await sender.send([1]) } }
            for _ in 0..<20 { await Task.yield() }
            sender.close()
            for task in senders {
                #expect(await thrownError { try await task.value }?.errno == .badFileDescriptor)
            }
        }
    }

    @Test func `a task that waits for room is cancelled, and its datagram not sent`() async throws {
        try await withRunLoopThread(name: "full") { thread in
            let loop = thread.runLoop
            let receiver = try loop.datagrams(boundTo: DatagramKind.abstract.freshAddress())
            let sender = try loop.datagrams(connectedTo: receiver.localAddress)
            let count = Shared(0)
            let task = Task {
                while true {
                    try await sender.send([0])
                    count.update { $0 += 1 }
                }
            }
            await yieldUntil { count.value > 5 }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            try await sender.send([1], timeout: .zero, afterReceiving: count.value, at: receiver)
        }
    }

    @Test func `closing ends the iteration, and releases the address`() async throws {
        try await withRunLoopThread(name: "closed") { thread in
            let datagrams = try thread.runLoop.datagrams(boundTo: .ipv4Loopback(port: 0))
            let task = Task { for try await _ in datagrams { Issue.record("a datagram") } }
            await Task.yield()
            datagrams.close()
            try await task.value
            _ = try thread.runLoop.datagrams(boundTo: datagrams.localAddress)
        }
    }

    @Test func `closing takes effect at once, although the loop has not closed the socket`() async throws {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let datagrams = try loop.datagrams(boundTo: .ipv4Loopback(port: 0))
            let trace = Trace()
            try onAThread {
                Task.immediate { try await datagrams.send([1], to: datagrams.localAddress) }
                datagrams.close()
                Task.immediate {
                    trace(await errno { try await datagrams.send([2], to: datagrams.localAddress) })
                    trace(await errno { _ = try await datagrams.receive() })
                }
            }
            while trace.all.count < 2 { loop.poll() }
            #expect(trace.all == ["\(Errno.badFileDescriptor)", "\(Errno.badFileDescriptor)"])
        }
    }

    @Test func `no task receives once closing has returned on another thread`() throws {
        var late = 0
        for _ in 0..<50 { late += try receivesAfterClosing() ? 1 : 0 }
        #expect(late == 0)
    }

    @Test func `sending fails once the loop's thread has ended`() async throws {
        let thread = try RunLoopThread(name: "ending")
        let datagrams = try thread.runLoop.datagrams(boundTo: .ipv4Loopback(port: 0))
        try await onItsOwnThread { thread.stop() }
        let error = await errno { try await datagrams.send([1], to: datagrams.localAddress) }
        #expect(error == "\(Errno.badFileDescriptor)")
    }

    @Test func `releasing the datagrams closes the socket`() async throws {
        try await withRunLoopThread(name: "released") { thread in
            let address = try SocketAddress(unixPath: freshPath())
            _ = try thread.runLoop.datagrams(boundTo: address)
            try await thread.runLoop.waitForPass()
            #expect(!exists(try #require(address.unixPath)))
        }
    }

    @Test func `the iteration ends with the loop's thread`() async throws {
        let thread = try RunLoopThread(name: "ending")
        let datagrams = try thread.runLoop.datagrams(boundTo: .ipv4Loopback(port: 0))
        let task = Task {
            for try await _ in datagrams { return false }
            return !Task.isCancelled
        }
        await Task.yield()
        try await onItsOwnThread { thread.stop() }
        #expect(try await task.value)
    }

    @Test func `a second task that receives traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "two")
            let datagrams = try thread.runLoop.datagrams(boundTo: .ipv4Loopback(port: 0))
            await withTaskGroup { group in
                for _ in 0..<2 { group.addTask { _ = try? await datagrams.receive() } }
            }
        }
        #expect(result.message.contains("Two tasks iterate over the same events"))
    }
}

/// Calls `body` with two sockets of a thread's loop.
private func withPair(
    _ body: nonisolated(nonsending) (DatagramSocket.Datagrams, DatagramSocket.Datagrams) async throws -> Void
) async throws {
    try await withRunLoopThread(name: "pair") { thread in
        let one = try thread.runLoop.datagrams(boundTo: .ipv4Loopback(port: 0))
        try await body(one, thread.runLoop.datagrams(boundTo: .ipv4Loopback(port: 0)))
    }
}

/// The description of the errno value that `body` throws; "none" if it throws none.
nonisolated(nonsending) private func errno(
    _ body: nonisolated(nonsending) () async throws -> Void
) async -> String {
    await thrownError(by: body)?.errno.map { "\($0)" } ?? "none"
}

/// Closes datagrams on one thread while another one receives, and returns whether any was received after that. The calling
/// thread's loop does not run meanwhile: it would close the socket.
private func receivesAfterClosing() throws -> Bool {
    // Each datagram is received by a system call of its own.
    var options = DatagramSocket.Options()
    options.datagramLimit = 1 << 20
    let datagrams = try RunLoop.current.datagrams(boundTo: .ipv4Loopback(port: 0), options: options)
    let socket = try #require(descriptor(boundTo: datagrams.localAddress))
    let client = try SocketPeer(family: AF_INET, SOCK_DGRAM)
    try client.connect(to: datagrams.localAddress)
    for size in 1...40 { client.send([UInt8](repeating: 0, count: size)) }
    let next = Shared(0)
    let closing = try JoinableThread {
        waitUntil { !(1...5).contains(socket.pendingCount) }
        datagrams.close()
        next.value = socket.pendingCount
    }
    let receiving = try JoinableThread { while datagrams.receivesNow() {} }
    closing.join()
    receiving.join()
    defer { RunLoop.current.poll() }
    return socket.pendingCount != next.value
}

/// The process's socket that is bound to `address`.
private func descriptor(boundTo address: SocketAddress) -> FileDescriptor? {
    (0..<65_536).lazy.map { FileDescriptor(rawValue: $0) }.first { (try? .local(of: $0)) == address }
}

extension FileDescriptor {
    /// How many bytes the next datagram has; 0 if there is none.
    fileprivate var pendingCount: Int {
        var count: CInt = 0
        return ioctl(rawValue, UInt(FIONREAD), &count) == 0 ? Int(count) : 0
    }
}

extension DatagramSocket.Datagrams {
    /// Receives a datagram without waiting; false if there is none.
    fileprivate func receivesNow() -> Bool {
        let isReceived = Shared(false)
        Task.immediate { isReceived.value = (try? await receive(timeout: .zero)) != nil }
        return isReceived.value
    }
}

/// Sends a datagram, and returns the kernel's report that no socket receives it.
private func refusal(of client: DatagramSocket.Datagrams) async -> (any Error)? {
    await thrownError {
        try await client.send([0])
        for try await _ in client {}
    }
}

extension DatagramSocket.Datagrams {
    /// Sends `bytes` once the receiver has taken exactly `count` datagrams, and checks that they come next.
    fileprivate func send(
        _ bytes: [UInt8], timeout: Duration, afterReceiving count: Int, at receiver: DatagramSocket.Datagrams
    ) async throws {
        for _ in 0..<count { #expect(try await receiver.receive().bytes == [0]) }
        try await send(bytes, timeout: timeout)
        #expect(try await receiver.receive().bytes == bytes)
    }
}
