import CReactorOpenSSL
import ReactorTestSupport

/// A client of OpenSSL itself on a blocking socket, which checks nothing.
final class OpenSSLClient {
    private let socket: SocketPeer
    private let context: OpaquePointer
    let ssl: OpaquePointer

    /// Makes the handshake.
    init(_ socket: SocketPeer) {
        self.socket = socket
        context = SSL_CTX_new(TLS_client_method())!
        ssl = SSL_new(context)!
        SSL_set_fd(ssl, socket.number)
        SSL_connect(ssl)
    }

    /// Makes the handshake, and calls `body` before it sends the last flight.
    init(_ socket: SocketPeer, beforeLastFlight body: () -> Void) {
        self.socket = socket
        context = SSL_CTX_new(TLS_client_method())!
        ssl = SSL_new(context)!
        let (input, output) = (BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()))
        SSL_set_bio(ssl, input, output)
        var bytes = [UInt8](repeating: 0, count: 4096)
        while SSL_connect(ssl) != 1 {
            let count = BIO_read(output, &bytes, CInt(bytes.count))
            if count > 0 { socket.send(Array(bytes.prefix(Int(count)))) }
            guard let received = socket.receive(upTo: 4096), !received.isEmpty else { return }
            BIO_write(input, received, CInt(received.count))
        }
        body()
        let count = BIO_read(output, &bytes, CInt(bytes.count))
        socket.send(Array(bytes.prefix(max(0, Int(count)))))
        SSL_set0_wbio(ssl, BIO_new_socket(socket.number, BIO_NOCLOSE))
    }

    deinit {
        SSL_free(ssl)
        SSL_CTX_free(context)
    }

    /// What it sends first.
    static var hello: [UInt8] {
        let context = SSL_CTX_new(TLS_client_method())
        let ssl = SSL_new(context)
        let (empty, output) = (BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()))
        SSL_set_bio(ssl, empty, output)
        SSL_connect(ssl)
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = BIO_read(output, &bytes, CInt(bytes.count))
        SSL_free(ssl)
        SSL_CTX_free(context)
        return Array(bytes.prefix(Int(count)))
    }

    func write(_ bytes: [UInt8]) { SSL_write(ssl, bytes, CInt(bytes.count)) }

    /// The next bytes; none at the end, or after an error.
    func read(upTo count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        let result = SSL_read(ssl, &bytes, CInt(count))
        return Array(bytes.prefix(max(0, Int(result))))
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
