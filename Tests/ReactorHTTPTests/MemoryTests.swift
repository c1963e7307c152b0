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
    @Test(arguments: ["queue", "loop", "task"])
    func `a body that arrives byte by byte takes no more memory than its bytes`(consumer: String) async {
        await #expect(processExitsWith: .success) { [consumer = consumer as String] in
            let (size, transfer, begin) = (8000, Answer<HTTPTransfer>(), Answer<Int>())
            let (isSent, received) = (Answer<Bool>(), Shared((pieces: 0, bytes: 0)))
            let server = try TestServer { peer, _ in
                _ = peer.readHead()
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n")
                let transfer = transfer.wait()
                var isOn: CInt = 1
                setsockopt(peer.number, CInt(IPPROTO_TCP), TCP_NODELAY, &isOn, 4)
                for count in 1...size {
                    peer.send([97])
                    waitUntil { transfer.progress.bytesReceived == count }
                    if count == 10 { begin.give(memoryInUse) }
                }
                isSent.give(true)
                peer.send([UInt8](repeating: 97, count: 200_000 - size))
            }
            let (queue, network) = (
                DispatchQueue(label: "slow"), try RunLoopThread(name: "network")
            )
            let (client, gate, isDone) = (try RunLoopThread(name: "client"), Answer<Bool>(), Answer<Bool>())
            // The consumer is busy until all bytes have been sent.
            queue.async { _ = gate.wait() }
            client.runLoop.perform { _ = gate.wait() }
            let session = HTTPSession(on: network.runLoop)
            let request = HTTPRequest(server.url)
            let handler = HTTPDestination.handler { event in
                guard case .bytes(let piece) = event else { return }
                received.update { $0 = ($0.pieces + 1, $0.bytes + piece.count) }
            }
            switch consumer {
            case "queue":
                transfer.give(
                    session.start(request, to: handler, delivery: .queue(queue)) { _ in isDone.give(true) })
            case "loop":
                transfer.give(
                    session.start(request, to: handler, delivery: .runLoop(client.runLoop)) { _ in
                        isDone.give(true)
                    })
            default:
                Task {
                    let (_, body) = try await session.response(for: request)
                    transfer.give(body.transfer)
                    try await onItsOwnThread { _ = gate.wait() }
                    for try await piece in body {
                        received.update { $0 = ($0.pieces + 1, $0.bytes + piece.count) }
                    }
                    isDone.give(true)
                }
            }
            let growth = try await onItsOwnThread {
                _ = isSent.wait()
                let growth = memoryInUse - begin.wait()
                gate.give(true)
                _ = isDone.wait()
                return growth
            }
            precondition(growth < 1 << 20, "\(growth)")
            precondition(received.value.bytes == 200_000)
            precondition(received.value.pieces < 200, "\(received.value.pieces)")
        }
    }

    @Test func `what has been consumed of a compressed body takes no more memory`() async {
        await #expect(processExitsWith: .success) {
            let (folder, size) = (TemporaryFolder(), 200_000_000)
            let gzip = try Child(
                "/bin/sh", ["-c", "head -c \(size) /dev/zero | gzip > \(folder.path("bomb"))"])
            _ = gzip.wait()
            let bomb = content(of: folder.path("bomb")) ?? []
            let gate = Answer<Bool>()
            let server = try TestServer { peer, _ in
                _ = peer.readHead()
                peer.send(
                    "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: \(bomb.count)\r\n\r\n")
                // Two reads of libcurl.
                peer.send(Array(bomb.prefix(122_880)))
                _ = gate.wait()
                peer.send(Array(bomb.dropFirst(122_880)))
                peer.waitForEnd()
            }
            let network = try RunLoopThread(name: "network")
            let (count, outcome, begin) = (Shared(0), Answer<Outcome>(), memoryInUse)
            let handler = HTTPDestination.handler { event in
                if case .bytes(let bytes) = event { count.update { $0 += bytes.count } }
            }
            let session = HTTPSession(on: network.runLoop)
            let queue = DispatchQueue(label: "consumer")
            session.start(HTTPRequest(server.url), to: handler, delivery: .queue(queue)) { outcome.give($0) }
            try await onItsOwnThread {
                count.wait { $0 > 120_000_000 ? () : nil }
                // The queue's last events may still wait.
                waitUntil { memoryInUse - begin < 16 << 20 }
                gate.give(true)
                precondition(outcome.wait().kind == nil)
            }
            precondition(count.value == size)
        }
    }
}

/// How many bytes malloc(3) has given out.
private var memoryInUse: Int {
    let information = mallinfo2()
    return information.uordblks + information.hblkhd
}
