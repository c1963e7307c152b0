import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamTaskWritingTests {
    @Test(arguments: TaskPlace.allCases)
    func `all bytes are written, however slowly they are read`(place: TaskPlace) async throws {
        let expected = pattern(1_000_000)
        let received = try await place.run { _ in
            let pipe = try FileDescriptor.pipe()
            let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
            let answer = Answer<[UInt8]>()
            _ = try JoinableThread { answer.give(pipe.readEnd.readToEnd()) }
            try await output.writeAll(Array(expected.prefix(500_000)))
            try await output.writeAll(Array(expected.dropFirst(500_000)))
            try await output.flush()
            output.close()
            return try await onItsOwnThread { answer.wait() }
        }
        #expect(received == expected)
    }

    @Test(arguments: TaskPlace.allCases)
    func `two tasks talk over a connection, and each ends its output`(place: TaskPlace) async throws {
        let (peer, other) = try SocketPeer.pair()
        let answer = Answer<String>()
        _ = try JoinableThread {
            peer.send(Array("question\n".utf8))
            answer.give(String(bytes: peer.receiveToEnd() ?? []))
            peer.close()
        }
        try await place.run { _ in
            let (input, output) = Stream.connection(descriptor: other, closeWhenDone: true)
            output.writeBufferSize = 65_536
            for try await line in input.lines {
                try await output.writeAll("the answer to \(line)")
                try await output.shutDown()
            }
        }
        let text = try await onItsOwnThread { answer.wait() }
        #expect(text == "the answer to question")
    }

    @Test func `a second task that writes gets an error, and the first one goes on`() async throws {
        let pipe = try FileDescriptor.pipe()
        let output = Carrier(OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true))
        let expected = pattern(200_000)
        let first = Task { try await output.value.writeAll(expected) }
        await yieldUntil { isFull(pipe.readEnd) }
        let error = await thrownError { try await output.value.writeAll([1]) }
        #expect((error as? IOError)?.errno == .resourceBusy)
        let answer = Answer<[UInt8]>()
        _ = try JoinableThread { answer.give(pipe.readEnd.readToEnd()) }
        try await first.value
        try await output.value.writeAll([2])
        output.value.close()
        #expect(try await onItsOwnThread { answer.wait() } == expected + [2])
    }

    @Test(arguments: TaskPlace.allCases)
    func `a cancelled write tells how many bytes were accepted`(place: TaskPlace) async throws {
        let pipe = try FileDescriptor.pipe()
        try await withRunLoopThread(name: "cancelled") { thread in
            let isWriting = Shared(false)
            let task = place.start(on: thread) {
                let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
                isWriting.value = true
                var accepted = 0
                let error = await thrownError {
                    try await output.writeAll(pattern(200_000), accepted: &accepted)
                }
                return (error is CancellationError, accepted)
            }
            await yieldUntil { isWriting.value && isFull(pipe.readEnd) }
            task.cancel()
            let (isCancelled, accepted) = try await task.value
            #expect(isCancelled)
            #expect(accepted == 65_536)
        }
        let received = try await onItsOwnThread { pipe.readEnd.readToEnd() }
        #expect(received == pattern(65_536))
    }

    @Test(arguments: TaskPlace.allCases)
    func `a deadline ends a write, and a reader that has gone is an error`(place: TaskPlace) async throws {
        try await place.run { _ in
            let pipe = try FileDescriptor.pipe()
            let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
            let start = Deadline.now
            var accepted = 0
            let late = await thrownError {
                try await output.writeAll(
                    pattern(100_000), accepted: &accepted, timeout: .milliseconds(5))
            }
            #expect(late?.errno == .timedOut)
            #expect(accepted == 65_536)
            #expect(Deadline.now - start >= .milliseconds(5))
            try pipe.readEnd.close()
            let broken = await thrownError { try await output.writeAll([0], accepted: &accepted) }
            #expect(broken?.errno == .brokenPipe)
            #expect(accepted == 0)
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `closing the stream ends a write`(place: TaskPlace) async throws {
        let pipe = try FileDescriptor.pipe()
        defer { try? pipe.readEnd.close() }
        try await withRunLoopThread(name: "closing") { thread in
            let output = Carrier(OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true))
            let task = place.start(on: thread) {
                await thrownError { try await output.value.writeAll(pattern(200_000)) }
            }
            await yieldUntil { isFull(pipe.readEnd) }
            output.value.close()
            let error = try await task.value
            #expect(error?.errno == .badFileDescriptor)
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `what a file has accepted is on disk when it is sent`(place: TaskPlace) async throws {
        let folder = TemporaryFolder()
        let expected = pattern(1_000_000)
        try await place.run { loop in
            let path = folder.path.appending("file")
            let output = OutputStream(path: path)
            output.schedule(in: loop, forMode: .common)
            try await output.writeAll(expected)
            try await output.flush()
            #expect(try content(of: path) == expected)
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a wait for the bytes in a write buffer ends with them, or at its deadline`(
        place: TaskPlace
    ) async throws {
        let (peer, other) = try SocketPeer.pair()
        try await place.run { _ in
            let output = Stream.connection(descriptor: other, closeWhenDone: true).output
            output.writeBufferSize = 4_000_000
            let bytes = pattern(2_000_000)
            try await output.writeAll(bytes)
            for _ in 0..<3 {
                let late = await thrownError { try await output.flush(timeout: .milliseconds(2)) }
                #expect(late?.errno == .timedOut)
            }
            #expect(waitingFlushCount(of: output) == 0)
            let carrier = Carrier(peer)
            _ = try JoinableThread { _ = carrier.value.receiveToEnd() }
            try await output.shutDown()
            #expect(output.streamStatus == .atEnd)
        }
    }

    @Test func `a full buffer ends a write`() async throws {
        let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: 4)
        defer { memory.deallocate() }
        let output = OutputStream(toBuffer: memory, capacity: 4)
        var accepted = 0
        let error = await thrownError {
            try await output.writeAll(Array("abcdef".utf8), accepted: &accepted)
        }
        #expect(error?.errno == .noSpace && (error as? IOError)?.subject == "a buffer of 4 bytes")
        #expect(accepted == 4)
        let pair = Stream.boundPair(bufferSize: 4)
        pair.output.open()
        pair.input.open()
        pair.input.close()
        let closed = await thrownError { try await pair.output.writeAll("a") }
        #expect(closed?.errno == .brokenPipe)
        let file = OutputStream(path: "/dev/null")
        let notSocket = await thrownError { try await file.shutDown() }
        #expect(notSocket?.errno == .notSocket)
    }

    // MARK: Connecting

    @Test(arguments: TaskPlace.allCases)
    func `a task connects, and talks`(place: TaskPlace) async throws {
        let host = try SocketHost(.ipv4) { peer in
            peer.send(peer.receiveToEnd() ?? [])
            peer.close()
        }
        let address = host.address
        let echo = try await place.run { _ in
            let (input, output) = try await Stream.connect(to: address)
            #expect(input.streamStatus == .open)
            #expect(output.streamStatus == .open)
            try await output.writeAll("hello")
            try await output.shutDown()
            var text = ""
            for try await chunk in input.chunks { text += String(bytes: chunk) }
            return text
        }
        #expect(echo == "hello")
        withExtendedLifetime(host) {}
    }

    @Test func `a timeout of connecting replaces the streams' own, also a longer one`() async throws {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0), backlog: 0)
        let (input, output) = try await Stream.connect(to: listener.localAddress, timeout: .seconds(100))
        #expect(input.connectTimeout == .seconds(100))
        input.close()
        output.close()
    }

    @Test(arguments: TaskPlace.allCases)
    func `a connection that is refused, or takes too long, is an error`(place: TaskPlace) async throws {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0), backlog: 0)
        let address = try listener.localAddress
        // The backlog has room for one connection.
        let first = try SocketPeer(connectedTo: address)
        try await place.run { _ in
            let late = await thrownError {
                _ = try await Stream.connect(to: address, timeout: .milliseconds(5))
            }
            #expect(late?.errno == .timedOut)
            listener.close()
            let refused = await thrownError { _ = try await Stream.connect(to: address) }
            #expect(refused?.errno == .connectionRefused)
        }
        first.close()
    }

    @Test(arguments: TaskPlace.allCases)
    func `a connection attempt is cancelled with its task`(place: TaskPlace) async throws {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0), backlog: 0)
        let address = try listener.localAddress
        let first = try SocketPeer(connectedTo: address)
        try await withRunLoopThread(name: "cancelled") { thread in
            for round in 0..<20 {
                let task = place.start(on: thread) {
                    await thrownError { _ = try await Stream.connect(to: address) }
                }
                for _ in 0..<round { await Task.yield() }
                task.cancel()
                let error = try await task.value
                #expect(error is CancellationError)
            }
        }
        first.close()
    }
}

extension FileDescriptor {
    /// Reads, blocking, until the end.
    fileprivate func readToEnd() -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while let count = try? buffer.withUnsafeMutableBytes({ try read(into: $0) }), count > 0 {
            bytes += buffer[..<count]
        }
        try? close()
        return bytes
    }
}

/// Whether the pipe of `descriptor` has no room for another page.
private func isFull(_ descriptor: FileDescriptor) -> Bool {
    var count: CInt = 0
    return ioctl(descriptor.rawValue, UInt(FIONREAD), &count) == 0 && count == 65_536
}
