import ArgumentParser
import ExampleSupport
import Reactor
import ReactorTLS
import SystemPackage

/// Connects with TLS, prints what the handshake has agreed on, and copies standard input and output.
@main
struct TLSClientCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tls-client",
        abstract: "Connects with TLS, and copies standard input and output.",
        discussion: """
            What the handshake has agreed on goes to standard error. The end of the standard input ends the output; the \
            program ends when the server does.
            """)

    @Argument(help: "The host to connect to.")
    var host: String

    @Argument(help: "The port to connect to.")
    var port: UInt16

    @Option(help: "The certificates to trust, instead of the system's (PEM).")
    var ca: String?

    @Option(
        help:
            "A proxy to connect through, such as socks5://USER:PASSWORD@localhost:1080, socks4://… or http://…."
    )
    var proxy: ProxyArgument?

    func run() throws {
        try StandardDescriptors.fillGaps()
        var settings = TLSSettings.client()
        if let ca { settings.trust = .file(FilePath(ca)) }
        let connection = Connection(
            toHost: host, port: port, options: .init(proxy: proxy?.proxy), security: try .tls(settings))
        let route = proxy.map { " through \($0.proxy.host):\($0.proxy.port)" } ?? ""
        let session = Session(connection, peer: "\(host):\(port)\(route)")
        session.start()
        RunLoop.main.run(in: .default)
        if let error = session.error {
            Session.report("\(error)")
            throw ExitCode.failure
        }
    }
}

/// The URL of a proxy.
struct ProxyArgument: ExpressibleByArgument {
    let proxy: StreamProxy

    init?(argument: String) {
        let kinds: [String: StreamProxy.Kind] = ["socks5": .socks5, "socks4": .socks4, "http": .http]
        guard let mark = argument.firstRange(of: "://"),
            let kind = kinds[String(argument[..<mark.lowerBound])]
        else { return nil }
        var rest = argument[mark.upperBound...]
        var (user, password): (String?, String?)
        if let sign = rest.lastIndex(of: "@") {
            let parts = rest[..<sign].split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            (user, password) = (String(parts[0]), parts.count > 1 ? String(parts[1]) : nil)
            rest = rest[rest.index(after: sign)...]
        }
        if rest.hasSuffix("/") { rest.removeLast() }
        guard let colon = rest.lastIndex(of: ":"), let port = UInt16(rest[rest.index(after: colon)...]) else {
            return nil
        }
        let host = rest[..<colon].filter { $0 != "[" && $0 != "]" }
        if host.isEmpty { return nil }
        proxy = StreamProxy(kind, host: String(host), port: port, user: user, password: password)
    }
}

/// A connection, and the standard input and output that it is copied from and to.
private final class Session: ConnectionDelegate, StreamDelegate {
    private let connection: Connection
    private let terminal = (
        input: InputStream(descriptor: .standardInput), output: OutputStream(descriptor: .standardOutput)
    )
    /// Whom the certificate is for, and the proxy on the way.
    private let peer: String
    private(set) var error: (any Error)?

    init(_ connection: Connection, peer: String) { (self.connection, self.peer) = (connection, peer) }

    func start() {
        terminal.output.open()
        connection.open(delegate: self)
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted: opened()
        case .hasBytesAvailable: receive()
        case .hasSpaceAvailable: send()
        case .endEncountered: end(nil)
        case .errorOccurred(let error): end(error)
        @unknown default: break
        }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable: send()
        case .endEncountered: try? connection.sendEnd()
        case .errorOccurred: end(stream.streamError)
        default: break
        }
    }

    private func opened() {
        if let session = connection.tlsSession {
            Self.report("\(session.version), \(session.cipher) with \(peer)")
        }
        terminal.input.delegate = self
        terminal.input.schedule(in: .current, forMode: .default)
        terminal.input.open()
    }

    private func receive() {
        let bytes = connection.receive()
        guard bytes.isEmpty || terminal.output.write(bytes) == bytes.count else {
            return end(terminal.output.streamError)
        }
    }

    /// Copies when there are bytes and room for them.
    private func send() {
        guard terminal.input.hasBytesAvailable, connection.writableCount > 0 else { return }
        do { try connection.send(terminal.input.read(upTo: connection.writableCount)) } catch { end(error) }
    }

    private func end(_ error: (any Error)?) {
        self.error = error
        connection.close()
        terminal.input.close()
        terminal.output.close()
        RunLoop.main.stop()
    }

    static func report(_ line: String) {
        _ = try? FileDescriptor.standardError.writeAll(Array("\(line)\n".utf8))
    }
}
