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
        if let ca { settings.trust = .file(ca) }
        let (input, output) = Stream.connection(toHost: host, port: port)
        output.proxy = proxy?.proxy
        try input.startTLS(settings)
        let route = proxy.map { " through \($0.proxy.host):\($0.proxy.port)" } ?? ""
        let session = Session(input, output, peer: "\(host):\(port)\(route)")
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
private final class Session: StreamDelegate {
    private let input: InputStream
    private let output: OutputStream
    private let terminal = (
        input: InputStream(descriptor: .standardInput), output: OutputStream(descriptor: .standardOutput)
    )
    /// Whom the certificate is for, and the proxy on the way.
    private let peer: String
    private(set) var error: (any Error)?
    private var hasInput = false
    private var hasSpace = false

    init(_ input: InputStream, _ output: OutputStream, peer: String) {
        (self.input, self.output, self.peer) = (input, output, peer)
    }

    func start() {
        terminal.output.open()
        for stream in [input, output] { start(stream) }
    }

    private func start(_ stream: Stream) {
        stream.delegate = self
        stream.schedule(in: .current, forMode: .default)
        stream.open()
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .openCompleted where stream === input: opened()
        case .hasBytesAvailable where stream === input: receive()
        case .hasBytesAvailable: send(input: true, space: hasSpace)
        case .hasSpaceAvailable: send(input: hasInput, space: true)
        case .endEncountered where stream === terminal.input: endOutput()
        case .endEncountered where stream === input: end(nil)
        case .errorOccurred: end(stream.streamError)
        default: break
        }
    }

    private func opened() {
        if let session = input.tlsSession {
            Self.report("\(session.version), \(session.cipher) with \(peer)")
        }
        start(terminal.input)
    }

    private func receive() {
        let bytes = input.read(upTo: 65_536)
        guard bytes.isEmpty || terminal.output.write(bytes) == bytes.count else {
            return end(terminal.output.streamError)
        }
    }

    /// Copies when there are bytes and room for them.
    private func send(input hasInput: Bool, space hasSpace: Bool) {
        (self.hasInput, self.hasSpace) = (hasInput, hasSpace)
        guard hasInput, hasSpace else { return }
        (self.hasInput, self.hasSpace) = (false, false)
        let bytes = terminal.input.read(upTo: 16_384)
        // Accepted in one piece: at an event for space, there is room for that much.
        if !bytes.isEmpty { output.write(bytes) } else { self.hasSpace = true }
    }

    private func endOutput() {
        do { try output.shutDown() } catch { end(error) }
    }

    private func end(_ error: (any Error)?) {
        self.error = error
        for stream in [input, output, terminal.input, terminal.output] { stream.close() }
        RunLoop.main.stop()
    }

    static func report(_ line: String) {
        _ = try? FileDescriptor.standardError.writeAll(Array("\(line)\n".utf8))
    }
}
