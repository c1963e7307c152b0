import CReactorOpenSSL
import Reactor
public import SystemPackage

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
        certificateFile: FilePath, keyFile: FilePath, password: String? = nil
    ) throws(TLSError) {
        let (certificate, key) = (try readFile(certificateFile), try readFile(keyFile))
        try self.init(certificate, key, password, named: (certificateFile.string, keyFile.string))
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
        credential = TLSCredential(certificate: first, key: key, chain: chain)
        guard credential.isMatching else { throw .settings("\(names.1) is not the key of \(names.0)") }
    }

    /// Takes a PKCS #12 archive, the format of `.p12` and `.pfx` files.
    ///
    /// - Throws: ``TLSError`` with ``TLSError/Reason/invalidSettings(_:)``.
    public init(pkcs12 bytes: [UInt8], password: String) throws(TLSError) {
        try Self.check(password)
        guard let archive = readArchive(bytes) else { throw .settings("the PKCS #12 archive cannot be read") }
        guard let credential = TLSCredential(archive, password) else {
            throw .settings(
                "the PKCS #12 archive has no certificate with a key that can be read with the password")
        }
        self.credential = credential
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

/// The parts of an identity.
struct TLSCredential: Sendable {
    let certificate: OpenSSLObject
    let key: OpenSSLObject
    /// The certificates of the issuers.
    let chain: OpenSSLObject

    init(certificate: OpenSSLObject, key: OpenSSLObject, chain: OpenSSLObject) {
        (self.certificate, self.key, self.chain) = (certificate, key, chain)
    }

    /// Nil if the PKCS #12 archive has no certificate with a key that can be read with the password.
    fileprivate init?(_ archive: OpenSSLObject, _ password: String) {
        var (key, certificate, chain): (OpaquePointer?, OpaquePointer?, OpaquePointer?) = (nil, nil, nil)
        let isRead = unsafe PKCS12_parse(archive.pointer, password, &key, &certificate, &chain) == 1
        let (ownedKey, ownedCertificate, ownedChain) = unsafe (
            OpenSSLObject.key(key), OpenSSLObject.certificate(certificate), OpenSSLObject.stack(chain)
        )
        guard isRead, let ownedKey, let ownedCertificate, let ownedChain else { return nil }
        self.init(certificate: ownedCertificate, key: ownedKey, chain: ownedChain)
    }

    /// Whether the key is the certificate's.
    fileprivate var isMatching: Bool {
        X509_check_private_key(certificate.pointer, key.pointer) == 1
    }

    /// Whether a context accepts it for all connections.
    func isUsed(by context: OpenSSLObject) -> Bool {
        SSL_CTX_use_cert_and_key(
            context.pointer, certificate.pointer, key.pointer, chain.pointer, 1) == 1
    }

    /// Whether the certificate is for the host `name`.
    func isFor(_ name: String) -> Bool { unsafe X509_check_host(certificate.pointer, name, 0, 0, nil) == 1 }
}

// MARK: - Reading

/// The certificates in a PEM text, as a stack.
private func readCertificates(_ text: [UInt8]) -> OpenSSLObject? {
    guard let chain = unsafe OpenSSLObject.stack(nil) else { return nil }
    let areRead = text.withMemoryBIO { reactor_x509_read(chain.pointer, $0) } ?? false
    if areRead { ERR_clear_error() }
    return areRead ? chain : nil
}

/// The private key in a PEM text. An empty password keeps OpenSSL from asking for one on the terminal.
private func readKey(_ text: [UInt8], _ password: String) -> OpenSSLObject? {
    var password = Array(password.utf8CString)
    return text.withMemoryBIO { unsafe .key(PEM_read_bio_PrivateKey($0, nil, nil, &password)) } ?? nil
}

private func readArchive(_ bytes: [UInt8]) -> OpenSSLObject? {
    bytes.withMemoryBIO { unsafe OpenSSLObject(d2i_PKCS12_bio($0, nil), free: PKCS12_free) } ?? nil
}

/// Throws unless the path is a directory's that can be read.
func checkDirectory(_ path: FilePath) throws(TLSError) {
    do { try FileDescriptor.open(path, .readOnly, options: .directory).close() } catch {
        throw TLSError(.invalidSettings("\(path): \(error)"))
    }
}

func readFile(_ path: FilePath) throws(TLSError) -> [UInt8] {
    do {
        let descriptor = try FileDescriptor.open(path, .readOnly)
        return try descriptor.closeAfter {
            var bytes: [UInt8] = []
            while try bytes.append(
                upTo: 16_384, { room in try SystemCall.read(descriptor.rawValue, into: &room) }) > 0
            {}
            return bytes
        }
    } catch {
        throw TLSError(.invalidSettings("\(path): \(error)"))
    }
}
