import CReactorOpenSSL
import Reactor

/// Prepares OpenSSL for calls, and empties the thread's queue of errors, so that the next one is theirs.
func prepareOpenSSL() {
    _ = isOpenSSLInitialized
    ERR_clear_error()
}

/// Has OpenSSL keep its memory at exit(3), when other threads may be using it. That takes effect if nothing else
/// in the program has initialized OpenSSL before; ReactorHTTP does the same. If it fails, so do the calls that follow.
private let isOpenSSLInitialized = OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil) == 1

/// An object of OpenSSL, which is freed with the last reference to this.
///
/// `@safe` is right: the pointer is valid as long as this, and C functions that are declared unsafe are marked where they
/// get it.
///
/// `@unchecked Sendable` is right: only its maker changes an object, before others have it, and OpenSSL locks
/// or copies what it changes by itself, such as reference counts, caches, and a session that several
/// connections resume. `free` captures nothing, so any thread may release last.
@safe
final class OpenSSLObject: @unchecked Sendable {
    typealias Free = @convention(c) (OpaquePointer?) -> Void

    @safe let pointer: OpaquePointer
    @safe private let free: Free

    /// Takes over an object; nil without one.
    init?(_ pointer: OpaquePointer?, free: Free) {
        guard let pointer = unsafe pointer else { return nil }
        unsafe (self.pointer, self.free) = (pointer, free)
    }

    deinit { unsafe free(pointer) }

    static func certificate(_ pointer: OpaquePointer?) -> OpenSSLObject? {
        unsafe OpenSSLObject(pointer, free: X509_free)
    }

    static func key(_ pointer: OpaquePointer?) -> OpenSSLObject? {
        unsafe OpenSSLObject(pointer, free: EVP_PKEY_free)
    }

    /// A stack of certificates; an empty one without `pointer`.
    static func stack(_ pointer: OpaquePointer?) -> OpenSSLObject? {
        unsafe OpenSSLObject(pointer ?? reactor_x509_make_stack(), free: reactor_x509_free_stack)
    }

    /// Removes the first certificate of a stack.
    func takeFirst() -> OpenSSLObject? { unsafe .certificate(reactor_x509_shift(pointer)) }
}

extension [UInt8] {
    /// Calls `body`, which calls C, with a BIO that reads the bytes; nil without memory.
    @safe
    func withMemoryBIO<Result>(_ body: (OpaquePointer) -> Result) -> Result? {
        prepareOpenSSL()
        return withBytes { bytes in
            bytes.withAddress { start, count in
                guard let bio = unsafe BIO_new_mem_buf(start, CInt(count)) else { return nil }
                defer { unsafe BIO_free(bio) }
                return unsafe body(bio)
            }
        }
    }
}

/// The certificates of a stack (DER).
func certificates(of stack: OpaquePointer?) -> [[UInt8]] {
    (0..<reactor_x509_count(stack)).map { unsafe certificate(reactor_x509_at(stack, $0)) }
}

/// A certificate's bytes (DER).
func certificate(_ certificate: OpaquePointer?) -> [UInt8] {
    var bytes: UnsafeMutablePointer<UInt8>?
    let count = unsafe i2d_X509(certificate, &bytes)
    defer { unsafe CRYPTO_free(bytes, nil, 0) }
    return unsafe Array(UnsafeBufferPointer(start: bytes, count: Int(max(0, count))))
}
