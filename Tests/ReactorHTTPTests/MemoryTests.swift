import CReactorTestSupport
import Dispatch
import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// The memory of bodies that wait for their consumer, in processes that do nothing else.
@Suite(.runLoop) struct MemoryTests {
    @Test func `a body that arrives byte by byte takes no more memory than its bytes`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                for consumer in ["queue", "loop", "task"] { try MemoryTests.receiveBytes(for: consumer) }
            }
        }
    }

    /// Receives a body byte by byte, the rest at once, while its consumer is busy until all bytes have been sent.
    private static func receiveBytes(for consumer: String) throws {
        let (size, received) = (2000, Shared((pieces: 0, bytes: 0)))
        let (arrived, growth) = (Shared(0), Answer<Int>())
        let (gate, isDone) = (Answer<Bool>(), Answer<Bool>())
        let server = try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n")
            var (isOn, begin) = (CInt(1), 0)
            setsockopt(peer.number, CInt(IPPROTO_TCP), TCP_NODELAY, &isOn, 4)
            for count in 1...size {
                peer.send([97])
                arrived.wait { $0 >= count ? () : nil }
                if count == 10 { begin = memoryInUse }
            }
            growth.give(memoryInUse - begin)
            peer.send([UInt8](repeating: 97, count: 200_000 - size))
        }
        let (queue, client) = (DispatchQueue(label: "slow"), try RunLoopThread(name: "client"))
        queue.async { _ = gate.wait() }
        client.runLoop.perform { _ = gate.wait() }
        @Sendable func note(_ piece: [UInt8]) {
            received.update { $0 = ($0.pieces + 1, $0.bytes + piece.count) }
        }
        try withNetwork { session in
            let request = HTTPRequest(server.url)
            @Sendable func watch(_ started: HTTPTransfer) {
                session.runLoop.perform { [loop = session.runLoop] in
                    let observer = RunLoop.Observer(for: .beforeWaiting) { _, _ in
                        arrived.value = started.progress.bytesReceived
                    }
                    loop.add(observer, forMode: .default)
                }
            }
            if consumer == "task" {
                Task {
                    let (_, body) = try await session.response(for: request)
                    watch(body.transfer)
                    try await onItsOwnThread { _ = gate.wait() }
                    for try await piece in body { note(piece) }
                    isDone.give(true)
                }
            } else {
                let delivery = consumer == "queue" ? HTTPDelivery.queue(queue) : .runLoop(client.runLoop)
                watch(
                    session.start(request, to: .pieces(note), delivery: delivery) { _ in isDone.give(true) })
            }
            precondition(growth.wait() < 100_000, "\(consumer): \(growth.wait())")
            gate.give(true)
            _ = isDone.wait()
        }
        client.stop()
        precondition(received.value.bytes == 200_000)
        precondition(received.value.pieces < 200, "\(consumer): \(received.value.pieces)")
    }

    @Test func `what has been consumed of a compressed body takes no more memory`() async {
        await #expect(processExitsWith: .success) {
            let (bomb, begin) = (try bomb(megabytes: 40), memoryInUse)
            let (gate, count, queue) = (Answer<Bool>(), Shared(0), DispatchQueue(label: "consumer"))
            let server = try TestServer { peer, _ in
                guard peer.readHead() != nil else { return }
                peer.send(
                    "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: \(bomb.count)\r\n\r\n")
                // One read of libcurl, which decodes to 21 MB.
                peer.send(Array(bomb.prefix(20_480)))
                _ = gate.wait()
                peer.send(Array(bomb.dropFirst(20_480)))
                peer.waitForEnd()
            }
            try await onItsOwnThread {
                try withNetwork { session in
                    let destination = HTTPDestination.pieces { bytes in count.update { $0 += bytes.count } }
                    let launch = session.launch(
                        HTTPRequest(server.url), to: destination, delivery: .queue(queue))
                    count.wait { $0 > 20_000_000 ? () : nil }
                    // libcurl keeps a buffer until the last of these bytes has been taken.
                    waitUntil { memoryInUse - begin < 8 << 20 }
                    gate.give(true)
                    precondition(launch.wait().kind == nil)
                }
            }
            precondition(count.value == 40_000_000)
        }
    }
}

/// `megabytes` of zeros, compressed to a thousandth of them.
func bomb(megabytes: Int, times: Int = 1) throws -> [UInt8] {
    let folder = TemporaryFolder()
    let zip = String(repeating: "| gzip -4 ", count: times)
    let command = "head -c \(megabytes)000000 /dev/zero \(zip) > \(folder.path("bomb"))"
    _ = try Child("/bin/sh", ["-c", command]).wait()
    return try #require(content(of: folder.path("bomb")))
}

/// How many bytes malloc(3) has given out.
private var memoryInUse: Int {
    let information = mallinfo2()
    return information.uordblks + information.hblkhd
}
