import CReactorOpenSSL
import Glibc
import Reactor
import SystemPackage

/// How OpenSSL reads and writes the bytes of a socket: those of its ``TLSTransport``.
enum TransportBIO {
    /// OpenSSL's table of the functions below. It is made once, and never freed.
    static var method: OpaquePointer? { unsafe OpaquePointer(bitPattern: address) }

    private static let address: UInt = {
        let method = unsafe BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "reactor")
        unsafe BIO_meth_set_read(method) { bio, target, count in
            reactor_bio_clear_retry(bio)
            let transport = transport(bio)
            var room = unsafe UnsafeMutableRawBufferPointer(start: target, count: Int(count)).mutableBytes
            let taken = transport.socket.read(into: &room)
            guard taken == 0 else { return CInt(taken) }
            if transport.socket.mayReadLater { reactor_bio_retry_read(bio) }
            return -1
        }
        unsafe BIO_meth_set_write(method) { bio, source, count in
            reactor_bio_clear_retry(bio)
            transport(bio).socket.write(unsafe UnsafeRawBufferPointer(start: source, count: Int(count)).bytes)
            return count
        }
        unsafe BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 }
        return UInt(bitPattern: method)
    }()

    /// `@safe`: only the functions above call it, with a BIO of a ``OpenSSLConnection``, whose transport outlives it.
    @safe
    private static func transport(_ bio: OpaquePointer?) -> TLSTransport {
        unsafe CallbackContext.object(BIO_get_data(bio))
    }
}
