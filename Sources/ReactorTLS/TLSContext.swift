import CReactorOpenSSL
import Glibc
import Reactor

/// What OpenSSL makes of settings, for all connections that have them.
final class TLSContext: Sendable {
    /// The longest chain of certificates, without the peer's own and the trusted one.
    private static let longestChain: CInt = 8
    /// The most issuers that a server names to its clients: a few kilobytes in each handshake.
    private static let announcedLimit = 32

    /// Without what belongs to the program or to a connection.
    let settings: TLSSettings
    /// A server's certificates, in the order of the identities.
    fileprivate let credentials: [TLSCredential]
    let object: OpenSSLObject
    /// The last session with each host.
    private let sessions = Mutex(RecentValues<[UInt8], Session>(limit: sessionLimit))

    init(_ settings: TLSSettings) throws(TLSError) {
        prepareOpenSSL()
        let object = unsafe OpenSSLObject(SSL_CTX_new(TLS_method()), free: SSL_CTX_free)
        guard let object else { throw .settings("OpenSSL has no memory") }
        self.settings = settings.shared
        (credentials, self.object) = (settings.identities.map(\.credential), object)
        let context = unsafe object.pointer
        // A transport retains its context, and owns the SSL that calls back.
        unsafe reactor_tls_set_context_data(context, Unmanaged.passUnretained(self).toOpaque())
        unsafe reactor_tls_set_modes(context)
        if settings.role == .server { unsafe reactor_tls_accept_names(context) }
        unsafe try setVersions(context)
        unsafe try setProtocols(context)
        unsafe try setCredentials(context)
        unsafe try setTrust(context, hasVerifier: settings.peerVerifier != nil)
        unsafe setSessions(context)
    }

    private func setVersions(_ context: OpaquePointer) throws(TLSError) {
        let (oldest, newest) = (settings.minimumVersion, settings.maximumVersion)
        let areSet =
            unsafe reactor_tls_set_minimum_version(context, CInt(oldest.rawValue)) == 1
            && reactor_tls_set_maximum_version(context, CInt(newest?.rawValue ?? 0)) == 1
        guard areSet, newest.map({ $0 >= oldest }) ?? true else {
            throw .settings("the versions of TLS cannot be used")
        }
    }

    private func setProtocols(_ context: OpaquePointer) throws(TLSError) {
        guard !settings.applicationProtocols.isEmpty else { return }
        for name in settings.applicationProtocols where !(1...255).contains(name.utf8.count) {
            throw TLSError(
                .invalidSettings("\"\(name)\" is no application protocol: its name has 1 to 255 bytes"))
        }
        if settings.role == .server {
            unsafe SSL_CTX_set_alpn_select_cb(context, selectProtocol, nil)
        } else {
            let list = protocolList
            unsafe SSL_CTX_set_alpn_protos(context, list, CUnsignedInt(list.count))
        }
    }

    /// The application protocols as TLS sends them.
    fileprivate var protocolList: [UInt8] {
        settings.applicationProtocols.flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) }
    }

    private func setCredentials(_ context: OpaquePointer) throws(TLSError) {
        if let first = credentials.first {
            let (certificate, key, chain) = unsafe (
                first.certificate.pointer, first.key.pointer, first.chain.pointer
            )
            guard unsafe SSL_CTX_use_cert_and_key(context, certificate, key, chain, 1) == 1 else {
                throw .settings("the certificate cannot be used")
            }
        } else if settings.role == .server {
            throw TLSError(.invalidSettings("a server needs a certificate: set TLSSettings.identities"))
        }
        if settings.role == .server, credentials.count > 1 {
            unsafe SSL_CTX_set_cert_cb(context, selectCredential, nil)
        }
    }

    // MARK: Trust

    private func setTrust(_ context: OpaquePointer, hasVerifier: Bool) throws(TLSError) {
        let mode = verificationMode(hasVerifier: hasVerifier)
        unsafe SSL_CTX_set_verify(context, mode, nil)
        guard mode != SSL_VERIFY_NONE else { return }
        unsafe SSL_CTX_set_verify_depth(context, Self.longestChain)
        unsafe SSL_CTX_set_cert_verify_callback(context, verify, nil)
        unsafe try add(settings.trust, to: context)
        ERR_clear_error()
    }

    private func add(_ trust: TLSTrust, to context: OpaquePointer) throws(TLSError) {
        let isAdded: Bool
        switch trust {
        case .system: isAdded = unsafe trustSystem(context)
        case .file(let path): isAdded = unsafe try add(readFile(path), to: context)
        case .directory(let path):
            // OpenSSL would notice that it is missing in each handshake.
            try checkDirectory(path)
            isAdded = unsafe SSL_CTX_load_verify_dir(context, path) == 1
        case .certificates(let text): isAdded = unsafe add(text, to: context)
        case .anyOf(let sources):
            for source in sources { unsafe try add(source, to: context) }
            isAdded = !sources.isEmpty
        }
        guard isAdded else { throw .settings("the trusted certificates cannot be read") }
    }

    private func verificationMode(hasVerifier: Bool) -> CInt {
        switch (settings.role, settings.clientCertificates) {
        case (.client, _):
            settings.verification == .disabled && !hasVerifier ? SSL_VERIFY_NONE : SSL_VERIFY_PEER
        case (.server, .ignored): SSL_VERIFY_NONE
        case (.server, .requested): SSL_VERIFY_PEER
        case (.server, .required): SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
        }
    }

    /// The directory first, from which OpenSSL reads what it needs: reading the file takes a hundred times
    /// as long.
    private func trustSystem(_ context: OpaquePointer) -> Bool {
        // As OpenSSL does: the user who runs a program of another's privileges does not choose what it trusts.
        let file = unsafe reactor_secure_environment(X509_get_default_cert_file_env()).map {
            unsafe String(cString: $0)
        }
        let directory = unsafe String(
            cString: reactor_secure_environment(X509_get_default_cert_dir_env())
                ?? X509_get_default_cert_dir())
        if let file {
            return unsafe SSL_CTX_load_verify_file(context, file) == 1
                && SSL_CTX_load_verify_dir(context, directory) == 1
        }
        guard Self.hasHashedNames(directory) else {
            return unsafe SSL_CTX_set_default_verify_paths(context) == 1
        }
        return unsafe SSL_CTX_load_verify_dir(context, directory) == 1
    }

    private static func hasHashedNames(_ directory: String) -> Bool {
        guard let stream = unsafe opendir(directory) else { return false }
        defer { unsafe closedir(stream) }
        while let entry = unsafe readdir(stream) {
            let name = unsafe String(cString: reactor_entry_name(entry))
            if name.utf8.count == 10, name.hasSuffix(".0") { return true }
        }
        return false
    }

    private func add(_ text: [UInt8], to context: OpaquePointer) -> Bool {
        let count = unsafe text.withMemoryBIO { bio -> Int? in
            var count = 0
            guard let items = unsafe PEM_X509_INFO_read_bio(bio, nil, nil, nil) else { return nil }
            defer { unsafe reactor_x509_info_free(items) }
            let itemCount = unsafe reactor_x509_info_count(items)
            for index in 0..<itemCount {
                let isAnnounced = settings.role == .server && count < Self.announcedLimit
                count += Int(unsafe reactor_x509_info_trust(items, index, context, isAnnounced ? 1 : 0))
            }
            return count
        }
        return count ?? 0 > 0
    }

    // MARK: Names

    /// Has the peer's certificate checked for the name, and sends that to the server unless it is an address.
    func setName(_ name: String?, of ssl: OpaquePointer, _ peer: String) throws(TLSError) {
        let verification = settings.verification
        guard let name else {
            if verification == .full { throw TLSError(.noName, peer: peer) }
            return
        }
        if let address = SocketAddress(name, port: 0) {
            guard unsafe verification != .full || setAddress(address, of: ssl) else {
                throw TLSError.settings("the address \(name) cannot be checked")
            }
            return
        }
        // As on a Mac: the common name counts for nothing, and a wildcard stands for a whole label.
        let flags = X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS
        unsafe SSL_set_hostflags(ssl, CUnsignedInt(flags))
        // OpenSSL would take a leading dot for all subdomains, and end the name at a null byte. The others are
        // in addresses only, such as one with an interface that this machine does not have.
        let isName = !name.hasPrefix(".") && name.utf8.allSatisfy { $0 > 0x20 && !"[]:%".utf8.contains($0) }
        let isChecked = unsafe verification != .full || SSL_set1_host(ssl, name) == 1
        guard unsafe isName && isChecked && reactor_tls_set_server_name(ssl, name) == 1 else {
            throw TLSError(.invalidSettings("\(name) is not a host's name"), peer: peer)
        }
    }

    /// Has the certificate checked for the address. Certificates have no interfaces.
    private func setAddress(_ address: SocketAddress, of ssl: OpaquePointer) -> Bool {
        func set(_ number: some FixedWidthInteger) -> Bool {
            unsafe withUnsafeBytes(of: number.bigEndian) { bytes in
                let start = unsafe bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
                return unsafe X509_VERIFY_PARAM_set1_ip(SSL_get0_param(ssl), start, bytes.count) == 1
            }
        }
        return address.ipv4.map(set) ?? address.ipv6.map(set) ?? false
    }

    // MARK: Sessions

    /// A session that later handshakes with the host can resume.
    struct Session {
        let object: OpenSSLObject
        /// When the host's certificates were verified: in the first of the handshakes that resume each other.
        let verification: ContinuousClock.Instant
    }

    /// The most hosts of which a client keeps a session: a few kilobytes each.
    private static let sessionLimit = 256
    /// How long a verification counts: as long as in curl.
    static let verificationLifetime = Duration.seconds(86_400)

    private func setSessions(_ context: OpaquePointer) {
        let isServer = settings.role == .server
        guard settings.resumesSessions else {
            return unsafe reactor_tls_forbid_sessions(context, isServer ? 1 : 0)
        }
        if isServer {
            // A session of one context is resumed in no other: the settings may have been different.
            unsafe SSL_CTX_set_session_id_context(context, "reactor", 7)
        } else {
            unsafe reactor_tls_keep_sessions(context, keepSession)
        }
    }

    /// The last session with a host. One of TLS 1.3 is not used again, so that an observer cannot link
    /// connections.
    func session(with host: [UInt8], at now: ContinuousClock.Instant = .now) -> Session? {
        sessions.withLock { sessions in
            guard let session = sessions.value(for: host) else { return nil }
            let version = unsafe SSL_SESSION_get_protocol_version(session.object.pointer)
            let isOld = session.verification.duration(to: now) > Self.verificationLifetime
            if isOld || version >= TLS1_3_VERSION { sessions.remove(host) }
            return isOld ? nil : session
        }
    }

    func keep(_ session: Session, with host: [UInt8]) {
        sessions.withLock { $0.set(session, for: host) }
    }

    fileprivate static func of(_ ssl: OpaquePointer?) -> TLSContext {
        unsafe Unmanaged<TLSContext>.fromOpaque(reactor_tls_context_data(ssl)).takeUnretainedValue()
    }
}

// MARK: - Callbacks of OpenSSL, during a handshake

private func keepSession(_ ssl: OpaquePointer?, _ session: OpaquePointer?) -> CInt {
    let transport = unsafe TLSTransport.of(ssl)
    guard let host = transport.sessionKey else { return 0 }
    // The reference is this function's if it returns 1.
    guard let owned = unsafe OpenSSLObject(session, free: SSL_SESSION_free) else { return 0 }
    let former = unsafe SSL_session_reused(ssl) == 1 ? transport.offeredSession : nil
    let verification = former?.verification ?? .now
    transport.context.keep(TLSContext.Session(object: owned, verification: verification), with: host)
    return 1
}

private func selectProtocol(
    _ ssl: OpaquePointer?, _ selected: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
    _ size: UnsafeMutablePointer<UInt8>?, _ offered: UnsafePointer<UInt8>?, _ offeredSize: CUnsignedInt,
    _: UnsafeMutableRawPointer?
) -> CInt {
    let offers = unsafe Array(UnsafeBufferPointer(start: offered, count: Int(offeredSize)))
    var ranges: [String: Range<Int>] = [:]
    var index = 0
    while index < offers.count {
        let range = index + 1..<min(index + 1 + Int(offers[index]), offers.count)
        ranges[String(decoding: offers[range], as: UTF8.self)] = range
        index = range.upperBound
    }
    for name in unsafe TLSContext.of(ssl).settings.applicationProtocols {
        guard let range = ranges[name] else { continue }
        unsafe selected?.pointee = offered?.advanced(by: range.lowerBound)
        unsafe size?.pointee = UInt8(range.count)
        return SSL_TLSEXT_ERR_OK
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL
}

private func selectCredential(_ ssl: OpaquePointer?, _: UnsafeMutableRawPointer?) -> CInt {
    guard let name = unsafe SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name) else { return 1 }
    let host = unsafe String(cString: name)
    guard let credential = unsafe TLSContext.of(ssl).credentials.first(where: { $0.isFor(host) }) else {
        return 1
    }
    let (certificate, key, chain) = unsafe (
        credential.certificate.pointer, credential.key.pointer, credential.chain.pointer
    )
    // Otherwise the first one stays, and is chosen if the client prefers its kind of key.
    unsafe SSL_certs_clear(ssl)
    return unsafe SSL_use_cert_and_key(ssl, certificate, key, chain, 1)
}

private func verify(_ verification: OpaquePointer?, _: UnsafeMutableRawPointer?) -> CInt {
    let isValid = unsafe X509_verify_cert(verification) == 1
    let transport = unsafe TLSTransport.of(reactor_tls_verified(verification))
    guard let verifier = transport.verifier else { return isValid ? 1 : 0 }
    let chain = unsafe certificates(of: X509_STORE_CTX_get0_untrusted(verification))
    let code = unsafe isValid ? X509_V_OK : X509_STORE_CTX_get_error(verification)
    // The program may use other connections.
    transport.leaveThreadMemory()
    let isAccepted = verifier.accepts(
        TLSPeerVerifier.Evidence(chain, name: transport.peerName, verification: code))
    // An error that the verification or the program has left would count as one of the handshake.
    ERR_clear_error()
    // Else the result stays, also if it is accepted: it is kept with the session.
    if isValid, !isAccepted {
        unsafe X509_STORE_CTX_set_error(verification, X509_V_ERR_APPLICATION_VERIFICATION)
    }
    return isAccepted ? 1 : 0
}

/// The certificates of a stack (DER).
func certificates(of stack: OpaquePointer?) -> [[UInt8]] {
    guard unsafe stack != nil else { return [] }
    let count = unsafe reactor_x509_count(stack)
    return (0..<count).map { unsafe certificate(reactor_x509_at(stack, $0)) }
}

/// A certificate's bytes (DER).
func certificate(_ certificate: OpaquePointer?) -> [UInt8] {
    var bytes: UnsafeMutablePointer<UInt8>?
    let count = unsafe i2d_X509(certificate, &bytes)
    defer { unsafe CRYPTO_free(bytes, nil, 0) }
    return unsafe Array(UnsafeBufferPointer(start: bytes, count: Int(max(0, count))))
}
