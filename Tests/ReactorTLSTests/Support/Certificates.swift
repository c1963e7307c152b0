import CReactorOpenSSL
import Glibc
import ReactorTLS

/// A certificate with its key, made for a test.
final class Certificate: @unchecked Sendable {
    let x509: OpaquePointer
    let key: OpaquePointer
    /// PEM.
    let certificateText: [UInt8]
    let keyText: [UInt8]
    private let identityResult: Result<TLSIdentity, any Error>

    /// - Parameters:
    ///   - issuer: Nil for a self-signed one.
    ///   - names: The subject alternative names, such as `DNS:localhost`.
    ///   - validity: When it is valid, in seconds from now.
    ///   - isEdwards: Whether the key is for Ed25519 instead of ECDSA.
    init(
        _ commonName: String, names: [String] = [], isAuthority: Bool = false,
        issuedBy issuer: Certificate? = nil,
        validity: ClosedRange<Int> = -3600...86_400, serial: Int = 1, isEdwards: Bool = false
    ) {
        let (x509, key) = (X509_new()!, Self.makeKey(isEdwards: isEdwards))
        (self.x509, self.key) = (x509, key)
        X509_set_version(x509, 2)
        ASN1_INTEGER_set(X509_get_serialNumber(x509), serial)
        X509_gmtime_adj(X509_getm_notBefore(x509), validity.lowerBound)
        X509_gmtime_adj(X509_getm_notAfter(x509), validity.upperBound)
        X509_set_pubkey(x509, key)
        let name = X509_get_subject_name(x509)
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_FLAG | 1, commonName, -1, -1, 0)
        X509_set_issuer_name(x509, X509_get_subject_name(issuer?.x509 ?? x509))
        Self.add(NID_basic_constraints, isAuthority ? "critical,CA:TRUE" : "CA:FALSE", to: x509)
        if isAuthority { Self.add(NID_key_usage, "critical,keyCertSign,cRLSign", to: x509) }
        if !names.isEmpty { Self.add(NID_subject_alt_name, names.joined(separator: ","), to: x509) }
        X509_sign(x509, issuer?.key ?? key, EVP_sha256())
        certificateText = Self.text { PEM_write_bio_X509($0, x509) }
        keyText = Self.text { PEM_write_bio_PrivateKey($0, key, nil, nil, 0, nil, nil) }
        identityResult = Result { [certificateText, keyText] in
            try TLSIdentity(certificate: certificateText, key: keyText)
        }
    }

    deinit {
        X509_free(x509)
        EVP_PKEY_free(key)
    }

    /// The same one each time, so that equal settings have equal contexts.
    var identity: TLSIdentity { get throws { try identityResult.get() } }

    /// A list that revokes certificates of this issuer, as PEM.
    func revocationList(of certificates: [Certificate]) -> [UInt8] {
        let list = X509_CRL_new()!
        defer { X509_CRL_free(list) }
        X509_CRL_set_version(list, 1)
        X509_CRL_set_issuer_name(list, X509_get_subject_name(x509))
        let now = ASN1_TIME_new()
        defer { ASN1_TIME_free(now) }
        X509_gmtime_adj(now, -60)
        X509_CRL_set1_lastUpdate(list, now)
        for certificate in certificates {
            let entry = X509_REVOKED_new()
            X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(certificate.x509))
            X509_REVOKED_set_revocationDate(entry, now)
            X509_CRL_add0_revoked(list, entry)
        }
        X509_gmtime_adj(now, 86_400)
        X509_CRL_set1_nextUpdate(list, now)
        X509_CRL_sign(list, key, EVP_sha256())
        return Self.text { PEM_write_bio_X509_CRL($0, list) }
    }

    /// A PKCS #12 archive.
    func archive(password: String, chain: [Certificate] = []) -> [UInt8] {
        let others = reactor_x509_make_stack()
        defer { reactor_x509_free_stack(others) }
        for certificate in chain {
            X509_up_ref(certificate.x509)
            OPENSSL_sk_push(others, UnsafeRawPointer(certificate.x509))
        }
        let archive = PKCS12_create(password, "test", key, x509, others, 0, 0, 0, 0, 0)
        defer { PKCS12_free(archive) }
        return Self.text { i2d_PKCS12_bio($0, archive) }
    }

    private static func makeKey(isEdwards: Bool) -> OpaquePointer {
        let context = EVP_PKEY_CTX_new_id(isEdwards ? EVP_PKEY_ED25519 : EVP_PKEY_EC, nil)
        defer { EVP_PKEY_CTX_free(context) }
        EVP_PKEY_keygen_init(context)
        if !isEdwards { EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) }
        var key: OpaquePointer?
        EVP_PKEY_keygen(context, &key)
        return key!
    }

    private static func add(_ kind: CInt, _ value: String, to x509: OpaquePointer) {
        let new = X509V3_EXT_conf_nid(nil, nil, kind, value)
        X509_add_ext(x509, new, -1)
        X509_EXTENSION_free(new)
    }

    private static func text(_ write: (OpaquePointer) -> CInt) -> [UInt8] {
        let bio = BIO_new(BIO_s_mem())!
        defer { BIO_free(bio) }
        precondition(write(bio) == 1, "OpenSSL cannot write for a test")
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = BIO_read(bio, &bytes, CInt(bytes.count))
        return Array(bytes.prefix(Int(max(0, count))))
    }
}

/// Certificates that most tests use.
enum TestCertificates {
    static let authority = Certificate("Test authority", isAuthority: true)
    static let intermediate = Certificate(
        "Test intermediate", isAuthority: true, issuedBy: authority, serial: 2)
    static let localhost = Certificate(
        "localhost", names: ["DNS:localhost", "IP:127.0.0.1", "IP:::1"], issuedBy: authority, serial: 3)
    static let example = Certificate(
        "example.org", names: ["DNS:example.org", "DNS:*.example.org"], issuedBy: authority, serial: 4)
    static let expired = Certificate(
        "localhost", names: ["DNS:localhost"], issuedBy: authority, validity: -7200...(-3600), serial: 5)
    static let early = Certificate(
        "localhost", names: ["DNS:localhost"], issuedBy: authority, validity: 3600...7200, serial: 6)
    static let client = Certificate("client", names: ["DNS:client"], issuedBy: authority, serial: 7)
    static let selfSigned = Certificate("localhost", names: ["DNS:localhost"])

    static var trust: TLSTrust { .certificates(authority.certificateText) }
}
