import CReactorOpenSSL
public import Reactor
public import SystemPackage

/// Why a TLS handshake or connection has failed: the reason and the peer.
///
/// ```swift
/// print(stream.streamError!)  // TLS with example.org:443: the certificate has expired
/// ```
public struct TLSError: ReactorError, Hashable {
    /// Why TLS has failed.
    @nonexhaustive public enum Reason: Hashable, Sendable {
        /// The peer's certificate is for other names than this one.
        case wrongName(String)
        /// The peer's name is not known, so it cannot be checked: set ``TLSSettings/peerName``.
        case noName
        /// No trusted certificate has issued the peer's.
        case unknownIssuer
        /// The peer's certificate has issued itself and is not trusted.
        case selfSigned
        /// The chain that the peer has sent ends in a root that is not trusted.
        case untrustedRoot
        /// A certificate of the peer's chain has expired.
        case expired
        /// A certificate of the peer's chain is not valid yet.
        case notYetValid
        /// A certificate of the peer's chain has been revoked.
        case revoked
        /// The peer's chain has too many certificates.
        case chainTooLong
        /// ``TLSSettings/peerVerifier`` has rejected the peer's chain.
        case rejected
        /// The peer's chain is invalid for another reason, in OpenSSL's words.
        case invalidChain(String)
        /// The peer has not presented a certificate.
        case noCertificate
        /// The connection has ended without the peer's close_notify: bytes may be missing.
        case truncated
        /// The peer has ended the connection during the handshake.
        case closedInHandshake
        /// The peer has sent this fatal alert (RFC 8446, section 6.2), in OpenSSL's words.
        case alert(UInt8, String)
        /// Both peers have no version of TLS in common.
        case noCommonVersion
        /// The peer does not speak TLS.
        case notTLS
        /// The server has sent bytes before the handshake that the client has not read. An attacker may have
        /// inserted them.
        case unprotectedBytes
        /// The peer breaks the protocol, in OpenSSL's words.
        case protocolViolation(String)
        /// A setting cannot be used.
        case invalidSettings(String)
        /// TLS cannot begin now: the connection has it, is closed or has failed, or is being written or iterated over.
        case cannotBegin(String)
    }

    /// Why TLS has failed.
    public let reason: Reason
    /// The peer: a host with its port, an address, or a descriptor's number. Empty if there is none.
    public let subject: String
    /// Nil: no system call has failed.
    public var errno: Errno? { nil }

    init(_ reason: Reason, peer: String = "") { (self.reason, subject) = (reason, peer) }
}

extension TLSError: CustomStringConvertible {
    /// The peer and the reason.
    public var description: String {
        (subject.isEmpty ? "TLS: " : "TLS with \(subject): ") + reason.description
    }
}

extension TLSError.Reason: CustomStringConvertible {
    /// The reason.
    public var description: String {
        switch self {
        case .wrongName(let name): "the certificate is not for \(name)"
        case .noName: "the peer has no name to check: set TLSSettings.peerName"
        case .unknownIssuer: "the issuer of the certificate is not known"
        case .selfSigned: "the certificate is self-signed and not trusted"
        case .untrustedRoot: "the chain of certificates ends in a root that is not trusted"
        case .expired: "the certificate has expired"
        case .notYetValid: "the certificate is not valid yet"
        case .revoked: "the certificate has been revoked"
        case .chainTooLong: "the chain of certificates is too long"
        case .rejected: "the program has rejected the certificate"
        case .invalidChain(let words): "the certificate is invalid: \(words)"
        case .noCertificate: "the peer has no certificate"
        case .truncated: "the connection ended without close_notify: bytes may be missing"
        case .closedInHandshake: "the peer has closed the connection during the handshake"
        case .alert(let code, let words): "the peer has sent the alert \(code): \(words)"
        case .noCommonVersion: "the peers have no version of TLS in common"
        case .notTLS: "the peer does not speak TLS"
        case .unprotectedBytes: "the peer has sent bytes before the handshake that were not read"
        case .protocolViolation(let words): words
        case .invalidSettings(let words): words
        case .cannotBegin(let words): "cannot begin \(words)"
        }
    }
}

// MARK: - OpenSSL's errors

extension TLSError.Reason {
    /// The reason for a failed verification of a chain.
    ///
    /// - Parameter name: What the certificate should be for.
    init(verification code: CInt, name: String) {
        self =
            switch code {
            case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH: .wrongName(name)
            case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
                X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
                .unknownIssuer
            case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT: .selfSigned
            case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN: .untrustedRoot
            case X509_V_ERR_CERT_HAS_EXPIRED: .expired
            case X509_V_ERR_CERT_NOT_YET_VALID: .notYetValid
            case X509_V_ERR_CERT_REVOKED: .revoked
            case X509_V_ERR_CERT_CHAIN_TOO_LONG: .chainTooLong
            case X509_V_ERR_APPLICATION_VERIFICATION: .rejected
            default: .invalidChain(unsafe String(cString: X509_verify_cert_error_string(CLong(code))))
            }
    }

    /// The reason for the first error in the thread's queue of OpenSSL errors.
    ///
    /// - Parameter isHandshake: Whether the handshake is not complete.
    init(queuedError error: UInt, isHandshake: Bool) {
        let reason = reactor_error_reason(error)
        if !reactor_ssl_library(error) {
            self = .protocolViolation(TLSError.words(for: error))
        } else if reason >= SSL_AD_REASON_OFFSET {
            let alert = reason - CInt(SSL_AD_REASON_OFFSET)
            let words = unsafe String(cString: SSL_alert_desc_string_long(alert))
            self = .alert(UInt8(truncatingIfNeeded: alert), words)
        } else {
            self =
                Self.handshakeFailures[reason].flatMap { isHandshake ? $0 : nil }
                ?? .protocolViolation(TLSError.words(for: error))
        }
    }

    private static let handshakeFailures: [CInt: Self] = [
        SSL_R_WRONG_VERSION_NUMBER: .notTLS, SSL_R_HTTP_REQUEST: .notTLS, SSL_R_HTTPS_PROXY_REQUEST: .notTLS,
        SSL_R_PACKET_LENGTH_TOO_LONG: .notTLS, SSL_R_BAD_RECORD_TYPE: .notTLS,
        SSL_R_UNSUPPORTED_PROTOCOL: .noCommonVersion, SSL_R_VERSION_TOO_LOW: .noCommonVersion,
        SSL_R_VERSION_TOO_HIGH: .noCommonVersion, SSL_R_NO_PROTOCOLS_AVAILABLE: .noCommonVersion,
        SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: .noCertificate,
    ]
}

extension TLSError {
    static func words(for error: UInt) -> String {
        unsafe String(copying: error == 0 ? nil : ERR_reason_error_string(error)) ?? "unknown error"
    }

    /// An error about settings, with OpenSSL's words for the reason if it has failed since
    /// `prepareOpenSSL()`.
    static func settings(_ what: String) -> TLSError {
        let error = ERR_get_error()
        ERR_clear_error()
        return TLSError(.invalidSettings(error == 0 ? what : "\(what): \(words(for: error))"))
    }
}

// MARK: - Cocoa's codes

extension TLSError {
    /// `NSOSStatusErrorDomain`, which streams have on a Mac, as the domain of a Foundation `NSError`.
    public var _domain: String { "NSOSStatusErrorDomain" }

    /// One of the codes of Secure Transport, such as `errSSLXCertChainInvalid`, as the code of a Foundation
    /// `NSError`.
    public var _code: Int {
        switch reason {
        case .protocolViolation, .notTLS, .unprotectedBytes: -9800  // errSSLProtocol
        case .noCommonVersion: -9801  // errSSLNegotiation
        case .closedInHandshake: -9806  // errSSLClosedAbort
        case .selfSigned, .chainTooLong, .noName, .invalidChain, .rejected: -9807  // errSSLXCertChainInvalid
        case .revoked: -9808  // errSSLBadCert
        case .unknownIssuer, .untrustedRoot: -9812  // errSSLUnknownRootCert
        case .expired: -9814  // errSSLCertExpired
        case .notYetValid: -9815  // errSSLCertNotYetValid
        case .truncated: -9816  // errSSLClosedNoNotify
        case .noCertificate: -9825  // errSSLPeerBadCert
        case .wrongName: -9843  // errSSLHostNameMismatch
        case .invalidSettings, .cannotBegin: -9848  // errSSLBadConfiguration
        case .alert(let code, _): Self.alertCodes[code] ?? -9824  // errSSLPeerHandshakeFail
        }
    }

    /// The codes of alerts (RFC 8446, section 6.2), which Secure Transport has in this order.
    private static let alertCodes: [UInt8: Int] = [
        10: -9819, 20: -9820, 22: -9822, 40: -9824, 42: -9825, 43: -9826, 44: -9827, 45: -9828, 46: -9829,
        47: -9830, 48: -9831, 49: -9832, 50: -9833, 51: -9834, 70: -9836, 71: -9837, 80: -9838, 90: -9839,
        100: -9840,
    ]
}
