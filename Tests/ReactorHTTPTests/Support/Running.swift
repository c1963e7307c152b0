import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

typealias Outcome = Result<HTTPTransfer.Response, HTTPError>
/// The library has an internal one.
typealias JoinableThread = ReactorTestSupport.JoinableThread

extension RunLoop {
    /// Runs the calling thread's loop until `condition` holds, which is checked when a callback has stopped the loop.
    func run(in mode: Mode = .default, while condition: () -> Bool) {
        while condition() { _ = run(in: mode) }
    }
}

/// A transfer and its outcome.
struct Launch: Sendable {
    let transfer: HTTPTransfer
    fileprivate let outcome: Shared<Outcome?>
    fileprivate let loop: RunLoop

    /// Waits until the transfer has completed. Runs the session's loop if that is the calling thread's.
    func wait() -> Outcome {
        if loop.isCurrent { loop.run { outcome.value == nil } }
        return outcome.wait { $0 }
    }
}

/// Calls `body` with a session on a thread of its own.
func withNetwork<Result>(
    _ configuration: HTTPSession.Configuration = .init(), _ body: (HTTPSession) throws -> Result
) throws -> Result {
    let thread = try RunLoopThread(name: "network")
    defer { thread.stop() }
    return try body(HTTPSession(configuration, on: thread.runLoop))
}

extension HTTPSession.Configuration {
    static func with(_ change: (inout Self) -> Void) -> Self {
        var configuration = Self()
        change(&configuration)
        return configuration
    }
}

extension HTTPSession {
    /// A session on the calling thread's loop.
    convenience init(
        _ configure: (inout Configuration) -> Void = { _ in }, inModes modes: [RunLoop.Mode] = [.common]
    ) {
        self.init(.with(configure), on: .current, inModes: modes)
    }

    func launch(
        _ request: HTTPRequest, body: HTTPSource? = nil, to destination: HTTPDestination = .memory(),
        delivery: HTTPDelivery = .session, progress: (@Sendable (HTTPTransfer.Progress) -> Void)? = nil
    ) -> Launch {
        let (outcome, isOwn) = (Shared<Outcome?>(nil), runLoop.isCurrent)
        let transfer = start(request, body: body, to: destination, delivery: delivery, progress: progress) {
            [runLoop] result in
            outcome.value = result
            if isOwn { runLoop.stop() }
        }
        return Launch(transfer: transfer, outcome: outcome, loop: runLoop)
    }

    func launch(_ url: String) -> Launch { launch(HTTPRequest(url)) }

    /// Starts a transfer and waits until it has completed.
    func run(
        _ request: HTTPRequest, body: HTTPSource? = nil, to destination: HTTPDestination = .memory(),
        progress: (@Sendable (HTTPTransfer.Progress) -> Void)? = nil
    ) -> Outcome { launch(request, body: body, to: destination, progress: progress).wait() }

    func run(_ url: String) -> Outcome { run(HTTPRequest(url)) }
}

extension HTTPDestination {
    /// Calls `body` with each piece of the body.
    static func pieces(_ body: @escaping @Sendable ([UInt8]) -> Void) -> Self {
        .handler { event in if case .bytes(let bytes) = event { body(bytes) } }
    }
}

extension Outcome {
    var error: HTTPError? {
        if case .failure(let error) = self { return error }
        return nil
    }
    var kind: HTTPError.Kind? { error?.kind }
    var body: String? { (try? get()).map { String(decoding: $0.body, as: UTF8.self) } }
}

/// A server that a test with virtual time plays itself: what it sends has arrived when the loop runs next.
struct PlayedServer {
    private let listener: SocketPeer
    let url: String

    init() throws {
        listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        url = "http://127.0.0.1:\(try listener.localAddress.port ?? 0)"
    }

    /// Accepts the next connection, and receives the head of its request.
    func accept(_ time: VirtualTime) throws -> SocketPeer {
        while !isAsked { time.advance(by: .milliseconds(1)) }
        let peer = try listener.accept()
        var isOn: CInt = 1
        setsockopt(peer.number, CInt(IPPROTO_TCP), TCP_NODELAY, &isOn, socklen_t(MemoryLayout<CInt>.size))
        while !Self.isReadable(peer) { time.advance(by: .milliseconds(1)) }
        #expect(peer.readHead() != nil)
        return peer
    }

    /// Whether a client has connected that is not accepted yet.
    var isAsked: Bool { Self.isReadable(listener) }

    private static func isReadable(_ peer: SocketPeer) -> Bool {
        var state = pollfd(fd: peer.number, events: Int16(POLLIN), revents: 0)
        return poll(&state, 1, 0) > 0
    }
}

extension TestServer {
    /// A server that sends `text` after the first head of each connection, and then ends its output.
    static func sending(_ text: @escaping @Sendable (_ head: String, _ connection: Int) -> String) throws
        -> TestServer
    {
        let requests = Trace()
        return try TestServer(requests: requests) { peer, number in
            guard let head = peer.readHead() else { return }
            requests(head)
            peer.send(text(head, number))
            peer.shutDown()
            peer.waitForEnd()
        }
    }

    static func sending(_ text: String) throws -> TestServer { try sending { _, _ in text } }

    /// A server that sends `first`, and `rest` once `gate` is open.
    static func halting(
        until gate: Answer<Bool>, _ first: String = "a", _ rest: String = "b", fields: String = ""
    ) throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            let length = first.utf8.count + rest.utf8.count
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(length)\r\n\(fields)\r\n\(first)")
            _ = gate.wait()
            peer.send(rest)
            peer.waitForEnd()
        }
    }

    /// A server of bodies without an end.
    static func endless(closed: Answer<Bool> = Answer()) throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send("HTTP/1.1 200 OK\r\n\r\n")
            while peer.send([UInt8](repeating: 97, count: 65_536)) {}
            closed.give(true)
        }
    }

    /// A server of bodies of `count` bytes.
    static func sized(_ count: Int) throws -> TestServer {
        try .responding { _, _ in response(body: String(repeating: "x", count: count)) }
    }

    /// A server that answers once, and opens `closed` when the client has closed the connection.
    static func waiting(forEnd closed: Answer<Bool>) throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send(response(body: "hello"))
            peer.waitForEnd()
            closed.give(true)
        }
    }
}
