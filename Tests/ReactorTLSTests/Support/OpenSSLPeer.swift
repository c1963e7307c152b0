import CReactorOpenSSL
import ReactorTestSupport

/// An end of OpenSSL itself on a blocking socket.
class OpenSSLPeer {
    fileprivate let socket: SocketPeer
    fileprivate let context: OpaquePointer
    let ssl: OpaquePointer

    fileprivate init(_ socket: SocketPeer, _ method: OpaquePointer, _ configure: (OpaquePointer) -> Void) {
        self.socket = socket
        context = SSL_CTX_new(method)!
        configure(context)
        ssl = SSL_new(context)!
        SSL_set_fd(ssl, socket.number)
    }

    deinit {
        SSL_free(ssl)
        SSL_CTX_free(context)
    }

    /// The records that `body` makes; they are not sent, and neither are later ones.
    func records(_ body: (OpaquePointer) -> Void) -> [UInt8] {
        let output = BIO_new(BIO_s_mem())
        SSL_set0_wbio(ssl, output)
        body(ssl)
        return Self.content(of: output)
    }

    fileprivate static func content(of output: OpaquePointer?) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = BIO_read(output, &bytes, CInt(bytes.count))
        return Array(bytes.prefix(max(0, Int(count))))
    }

    func write(_ bytes: [UInt8]) { SSL_write(ssl, bytes, CInt(bytes.count)) }

    /// The next `count` bytes; fewer at the end, or after an error.
    func read(exactly count: Int) -> [UInt8] {
        var (bytes, block) = ([UInt8](), [UInt8](repeating: 0, count: 16_384))
        while bytes.count < count {
            let result = SSL_read(ssl, &block, CInt(min(block.count, count - bytes.count)))
            guard result > 0 else { break }
            bytes += block.prefix(Int(result))
        }
        return bytes
    }
}

/// A client, which checks nothing.
final class OpenSSLClient: OpenSSLPeer {
    /// Makes the handshake.
    init(_ socket: SocketPeer) {
        super.init(socket, TLS_client_method()) { _ in }
        SSL_connect(ssl)
    }

    /// Makes the handshake, and calls `body` before it sends the last flight.
    init(_ socket: SocketPeer, beforeLastFlight body: () -> Void) {
        super.init(socket, TLS_client_method()) { _ in }
        let (input, output) = (BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()))
        SSL_set_bio(ssl, input, output)
        while SSL_connect(ssl) != 1 {
            socket.send(Self.content(of: output))
            guard let received = socket.receive(upTo: 4096), !received.isEmpty else { return }
            BIO_write(input, received, CInt(received.count))
        }
        body()
        socket.send(Self.content(of: output))
        SSL_set0_wbio(ssl, BIO_new_socket(socket.number, BIO_NOCLOSE))
    }

    /// What a client sends first.
    static var hello: [UInt8] {
        let context = SSL_CTX_new(TLS_client_method())
        let (ssl, empty, output) = (SSL_new(context), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()))
        SSL_set_bio(ssl, empty, output)
        SSL_connect(ssl)
        defer {
            SSL_free(ssl)
            SSL_CTX_free(context)
        }
        return content(of: output)
    }

    /// Changes its keys, and asks the server to change its own (RFC 8446, section 4.6.3).
    func renewKeys() {
        SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED)
        SSL_do_handshake(ssl)
    }

    /// The names of the issuers whose certificates the server asks for.
    var wantedIssuers: [String] {
        let names = SSL_get_client_CA_list(ssl)
        return (0..<max(0, OPENSSL_sk_num(names))).map { index in
            let name = OPENSSL_sk_value(names, index).map { OpaquePointer($0) }
            let text = X509_NAME_oneline(name, nil, 0)
            defer { CRYPTO_free(text, nil, 0) }
            return text.map { String(cString: $0) } ?? ""
        }
    }
}

/// A server whose records a test sends in pieces of its own.
final class OpenSSLServer: OpenSSLPeer {
    /// Makes the handshake, and sends no tickets.
    init(_ socket: SocketPeer, version: CInt) {
        super.init(socket, TLS_server_method()) { context in
            SSL_CTX_use_certificate(context, TestCertificates.localhost.x509)
            SSL_CTX_use_PrivateKey(context, TestCertificates.localhost.key)
            SSL_CTX_set_num_tickets(context, 0)
            SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(version), nil)
            // Records of the smallest size that a peer may ask for (RFC 6066, section 4).
            SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_SEND_FRAGMENT, 512, nil)
        }
        SSL_accept(ssl)
    }

    /// The records of a ticket (RFC 8446, section 4.6.1) of some kilobytes, one after the other.
    func ticket() -> [[UInt8]] {
        let ballast = [UInt8](repeating: 7, count: 2000)
        SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), ballast, ballast.count)
        var bytes = records { ssl in
            SSL_new_session_ticket(ssl)
            SSL_do_handshake(ssl)
        }[...]
        var pieces: [[UInt8]] = []
        while bytes.count > 5 {
            let size = 5 + Int(bytes[bytes.startIndex + 3]) << 8 + Int(bytes[bytes.startIndex + 4])
            pieces.append(Array(bytes.prefix(size)))
            bytes = bytes.dropFirst(size)
        }
        return pieces
    }

    /// Whether the client has announced its end.
    var isEnded: Bool { SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN != 0 }
}
