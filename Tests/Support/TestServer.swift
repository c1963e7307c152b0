import Reactor
import SystemPackage

/// A server on loopback whose connections are served by a closure, each on a thread of its own.
package final class TestServer: Sendable {
    package let url: String
    /// The heads of the requests that a server of ``responding(_:)`` has read.
    package let requests: Trace
    private let listener: SocketPeer

    /// - Parameter serve: Called with each connection and its number, from 0; the connection is closed when it returns.
    package init(
        requests: Trace = Trace(), _ serve: @escaping @Sendable (SocketPeer, Int) -> Void
    ) throws {
        self.requests = requests
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        // Accepts until it is released.
        listener.setPatience(0)
        self.listener = listener
        url = "http://127.0.0.1:\(try listener.localAddress.port ?? 0)"
        _ = try JoinableThread(name: "server") {
            var number = 0
            while let peer = try? listener.accept() {
                let connection = number
                number += 1
                _ = try? JoinableThread(name: "connection") { serve(peer, connection) }
            }
        }
    }

    /// A server that answers each request on each connection with what `respond` returns for its head and its number.
    package static func responding(_ respond: @escaping @Sendable (String, Int) -> String) throws
        -> TestServer
    {
        let (count, requests) = (Shared(0), Trace())
        return try TestServer(requests: requests) { peer, _ in
            while let head = peer.readHead() {
                requests(head)
                let number = count.update { count in
                    defer { count += 1 }
                    return count
                }
                peer.send(Array(respond(head, number).utf8))
            }
        }
    }

    deinit { listener.stopAccepting() }
}

extension SocketPeer {
    /// Reads to the end of a request's head; nil if the connection has ended.
    package func readHead() -> String? {
        var head: [UInt8] = []
        while !head.suffix(4).elementsEqual([13, 10, 13, 10]) {
            guard let byte = receive(upTo: 1), !byte.isEmpty else { return nil }
            head += byte
        }
        return String(decoding: head, as: UTF8.self)
    }

    package func send(_ text: String) { send(Array(text.utf8)) }

    /// Waits until the other side has closed the connection.
    package func waitForEnd() { while let bytes = receive(upTo: 4096), !bytes.isEmpty {} }
}

/// A response with a body.
package func response(_ status: String = "200 OK", _ fields: [String] = [], body: String = "") -> String {
    let lines = ["HTTP/1.1 \(status)", "Content-Length: \(body.utf8.count)"] + fields
    return lines.joined(separator: "\r\n") + "\r\n\r\n" + body
}
