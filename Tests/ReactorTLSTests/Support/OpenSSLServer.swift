import CReactorOpenSSL
import ReactorTestSupport

/// A server of OpenSSL itself on a blocking socket, whose records a test sends in pieces of its own.
final class OpenSSLServer {
    private let context: OpaquePointer
    private let ssl: OpaquePointer
    private let socket: SocketPeer

    /// Makes the handshake, and sends no tickets.
    init(_ socket: SocketPeer, _ certificate: Certificate = TestCertificates.localhost, version: CInt) {
        self.socket = socket
        context = SSL_CTX_new(TLS_server_method())!
        ssl = Self.makeSSL(context, certificate, version: version)
        SSL_set_fd(ssl, socket.number)
        SSL_accept(ssl)
    }

    private static func makeSSL(
        _ context: OpaquePointer, _ certificate: Certificate, version: CInt
    ) -> OpaquePointer {
        SSL_CTX_use_certificate(context, certificate.x509)
        SSL_CTX_use_PrivateKey(context, certificate.key)
        SSL_CTX_set_num_tickets(context, 0)
        reactor_tls_set_maximum_version(context, version)
        // Records of the smallest size that a peer may ask for (RFC 6066, section 4).
        SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_SEND_FRAGMENT, 512, nil)
        return SSL_new(context)!
    }

    deinit {
        SSL_free(ssl)
        SSL_CTX_free(context)
    }

    /// The records that `body` makes; they are not sent.
    func records(_ body: (OpaquePointer) -> Void) -> [UInt8] {
        let output = BIO_new(BIO_s_mem())
        SSL_set0_wbio(ssl, output)
        body(ssl)
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = BIO_read(output, &bytes, CInt(bytes.count))
        return Array(bytes.prefix(max(0, Int(count))))
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

    /// The next `count` clear bytes; fewer at the end.
    func read(exactly count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        var block = [UInt8](repeating: 0, count: 16_384)
        while bytes.count < count {
            let result = SSL_read(ssl, &block, CInt(min(block.count, count - bytes.count)))
            guard result > 0 else { break }
            bytes += block.prefix(Int(result))
        }
        return bytes
    }

    /// Whether the client has announced its end.
    var isEnded: Bool { SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN != 0 }
}
