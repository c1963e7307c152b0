import CReactorOpenSSL
import Reactor
import SystemPackage

/// A certificate, the chain that leads to its issuer, and its private key.
///
/// Load it once: connections with the same object share what OpenSSL makes of it.
public final class TLSIdentity: Hashable, Sendable {
    let credential: TLSCredential

    /// Reads PEM files.
    ///
    /// - Parameters:
    ///   - certificateFile: The certificate, followed by those of its issuers.
    ///   - keyFile: The private key. May be the same file.
    ///   - password: The key's password, if it is encrypted.
    /// - Throws: ``TLSError`` with ``TLSError/Reason/invalidSettings(_:)``.
    public convenience init(
        certificateFile: String, keyFile: String, password: String? = nil
    ) throws(TLSError) {
        let (certificate, key) = (try readFile(certificateFile), try readFile(keyFile))
        try self.init(certificate, key, password, named: (certificateFile, keyFile))
    }

    /// Takes PEM texts: a certificate followed by those of its issuers, and the private key.
    public convenience init(certificate: [UInt8], key: [UInt8], password: String? = nil) throws(TLSError) {
        try self.init(certificate, key, password, named: ("the certificate", "the key"))
    }

    private init(
        _ certificate: [UInt8], _ key: [UInt8], _ password: String?, named names: (String, String)
    ) throws(TLSError) {
        try Self.check(password)
        guard let chain = readCertificates(certificate), let first = chain.takeFirst() else {
            throw .settings("\(names.0) has no certificate (PEM)")
        }
        guard let key = readKey(key, password ?? "") else {
            throw .settings("\(names.1) has no private key (PEM) that can be read with the password")
        }
        guard unsafe X509_check_private_key(first.pointer, key.pointer) == 1 else {
            throw .settings("\(names.1) is not the key of \(names.0)")
        }
        credential = TLSCredential(certificate: first, key: key, chain: chain)
    }

    /// Takes a PKCS #12 archive, the format of `.p12` and `.pfx` files.
    ///
    /// - Throws: ``TLSError`` with ``TLSError/Reason/invalidSettings(_:)``.
    public init(pkcs12 bytes: [UInt8], password: String) throws(TLSError) {
        try Self.check(password)
        let archive = unsafe bytes.withMemoryBIO { bio in
            unsafe OpenSSLObject(d2i_PKCS12_bio(bio, nil), free: PKCS12_free)
        }
        guard let archive else { throw .settings("the PKCS #12 archive cannot be read") }
        var (key, certificate, others): (OpaquePointer?, OpaquePointer?, OpaquePointer?) = (nil, nil, nil)
        let code = unsafe PKCS12_parse(archive.pointer, password, &key, &certificate, &others)
        let chain = unsafe OpenSSLObject.stack(others)
        let (ownedKey, ownedCertificate) = unsafe (
            OpenSSLObject.key(key), OpenSSLObject.certificate(certificate)
        )
        guard code == 1, let ownedKey, let ownedCertificate, let chain else {
            throw .settings(
                "the PKCS #12 archive has no certificate with a key that can be read with the password")
        }
        credential = TLSCredential(certificate: ownedCertificate, key: ownedKey, chain: chain)
    }

    /// OpenSSL would end the password at a null byte.
    private static func check(_ password: String?) throws(TLSError) {
        guard password?.utf8.contains(0) != true else {
            throw TLSError(.invalidSettings("the password contains a null byte"))
        }
    }

    deinit { TLSContext.removeAll(of: self) }

    /// Whether both are the same object.
    public static func == (left: TLSIdentity, right: TLSIdentity) -> Bool { left === right }

    /// Adds the object's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

/// What an identity consists of.
struct TLSCredential: Sendable {
    let certificate: OpenSSLObject
    let key: OpenSSLObject
    /// The certificates of the issuers.
    let chain: OpenSSLObject

    /// Whether the certificate is for the host `name`.
    func isFor(_ name: String) -> Bool { unsafe X509_check_host(certificate.pointer, name, 0, 0, nil) == 1 }
}

// MARK: - OpenSSL's objects

/// Prepares OpenSSL for calls, and empties the thread's queue of errors, so that the next one is theirs.
func prepareOpenSSL() {
    _ = isOpenSSLInitialized
    ERR_clear_error()
}

/// Has OpenSSL keep its memory at exit(3), when other threads may be using it. That takes effect if nothing else
/// in the program, such as libcurl, has initialized OpenSSL before. If it fails, so do the calls that follow.
private let isOpenSSLInitialized = OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil) == 1

/// An object of OpenSSL, which is freed with the last reference to this.
///
/// `@unchecked Sendable` is right: only its maker changes an object, before others have it, and OpenSSL locks
/// or copies what it changes by itself, such as reference counts, caches, and a session that several
/// connections resume. `free` captures nothing, so any thread may release last.
@safe
final class OpenSSLObject: @unchecked Sendable {
    typealias Free = @convention(c) (OpaquePointer?) -> Void

    let pointer: OpaquePointer
    private let free: Free

    /// Nil without an object.
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
    fileprivate func takeFirst() -> OpenSSLObject? { unsafe .certificate(reactor_x509_shift(pointer)) }
}

extension [UInt8] {
    /// Calls `body` with a BIO that reads the bytes.
    func withMemoryBIO<Result>(_ body: (OpaquePointer) -> Result?) -> Result? {
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

/// The certificates in a PEM text, as a stack.
private func readCertificates(_ text: [UInt8]) -> OpenSSLObject? {
    let chain = unsafe text.withMemoryBIO { bio -> OpenSSLObject? in
        guard let chain = unsafe OpenSSLObject.stack(nil) else { return nil }
        while let certificate = unsafe PEM_read_bio_X509(bio, nil, nil, nil) {
            unsafe reactor_x509_push(chain.pointer, certificate)
        }
        // The end of the text counts as an error, too.
        let isAtEnd = reactor_error_reason(ERR_peek_last_error()) == PEM_R_NO_START_LINE
        return isAtEnd ? chain : nil
    }
    if chain != nil { ERR_clear_error() }
    return chain
}

/// The private key in a PEM text. An empty password keeps OpenSSL from asking for one on the terminal.
private func readKey(_ text: [UInt8], _ password: String) -> OpenSSLObject? {
    unsafe text.withMemoryBIO { bio in
        var copy = Array(password.utf8CString)
        return unsafe copy.withUnsafeMutableBytes { bytes in
            unsafe .key(PEM_read_bio_PrivateKey(bio, nil, nil, bytes.baseAddress))
        }
    }
}

/// Throws unless the path is a directory's that can be read.
func checkDirectory(_ path: String) throws(TLSError) {
    do { try FileDescriptor.open(FilePath(path), .readOnly, options: .directory).close() } catch {
        throw TLSError(.invalidSettings("\(path): \(error)"))
    }
}

func readFile(_ path: String) throws(TLSError) -> [UInt8] {
    do {
        let descriptor = try FileDescriptor.open(FilePath(path), .readOnly)
        return try descriptor.closeAfter {
            var (bytes, block) = ([UInt8](), [UInt8](repeating: 0, count: 16_384))
            while true {
                let count = unsafe try block.withUnsafeMutableBytes { unsafe try descriptor.read(into: $0) }
                if count == 0 { return bytes }
                bytes += block[..<count]
            }
        }
    } catch {
        throw TLSError(.invalidSettings("\(path): \(error)"))
    }
}
