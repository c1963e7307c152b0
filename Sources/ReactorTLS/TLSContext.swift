import CReactorOpenSSL
import Glibc
import Reactor
import SystemPackage

/// OpenSSL's form of settings, for all connections that have them.
final class TLSContext: Sendable {
    /// The longest chain of certificates, without the peer's own and the trusted one.
    private static let longestChain: CInt = 8
    /// The most issuers that a server names to its clients: a few kilobytes in each handshake.
    private static let announcedLimit: CInt = 32

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
        // A transport retains its context, and owns the connection that calls back.
        unsafe reactor_tls_set_context_data(object.pointer, CallbackContext.address(of: self))
        try setVersions()
        try setProtocols()
        try setCredentials()
        try setTrust(hasVerifier: settings.peerVerifier != nil)
        setSessions()
    }

    private func setVersions() throws(TLSError) {
        let (oldest, newest) = (settings.minimumVersion, settings.maximumVersion)
        let areSet = reactor_tls_configure(
            object.pointer, settings.role == .server, CInt(oldest.rawValue), CInt(newest?.rawValue ?? 0))
        guard areSet, newest.map({ $0 >= oldest }) ?? true else {
            throw .settings("the versions of TLS cannot be used")
        }
    }

    private func setProtocols() throws(TLSError) {
        guard !settings.applicationProtocols.isEmpty else { return }
        for name in settings.applicationProtocols where !(1...255).contains(name.utf8.count) {
            throw TLSError(
                .invalidSettings("\"\(name)\" is no application protocol: its name has 1 to 255 bytes"))
        }
        if settings.role == .server {
            unsafe SSL_CTX_set_alpn_select_cb(object.pointer, selectProtocol, nil)
        } else {
            let list = protocolList
            unsafe SSL_CTX_set_alpn_protos(object.pointer, list, CUnsignedInt(list.count))
        }
    }

    /// The application protocols as TLS sends them.
    fileprivate var protocolList: [UInt8] {
        settings.applicationProtocols.flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) }
    }

    private func setCredentials() throws(TLSError) {
        if let first = credentials.first {
            guard first.isUsed(by: object) else { throw .settings("the certificate cannot be used") }
        } else if settings.role == .server {
            throw TLSError(.invalidSettings("a server needs a certificate: set TLSSettings.identities"))
        }
        if settings.role == .server, credentials.count > 1 {
            unsafe SSL_CTX_set_cert_cb(object.pointer, selectCredential, nil)
        }
    }

    // MARK: Trust

    private func setTrust(hasVerifier: Bool) throws(TLSError) {
        let mode = verificationMode(hasVerifier: hasVerifier)
        guard mode != SSL_VERIFY_NONE else { return }
        unsafe reactor_tls_set_verification(object.pointer, mode, Self.longestChain, verify)
        try add(settings.trust)
        ERR_clear_error()
    }

    private func add(_ trust: TLSTrust) throws(TLSError) {
        let isAdded: Bool
        switch trust {
        case .system: isAdded = trustSystem()
        case .file(let path): isAdded = try add(readFile(path))
        case .directory(let path):
            // OpenSSL would notice that it is missing in each handshake.
            try checkDirectory(path)
            isAdded = add(directory: path)
        case .certificates(let text): isAdded = add(text)
        case .anyOf(let sources):
            for source in sources { try add(source) }
            isAdded = !sources.isEmpty
        }
        guard isAdded else { throw .settings("the trusted certificates cannot be read") }
    }

    private func add(directory: FilePath) -> Bool {
        unsafe directory.withPlatformString { SSL_CTX_load_verify_dir(object.pointer, $0) == 1 }
    }

    private func add(_ text: [UInt8]) -> Bool {
        let announced = settings.role == .server ? Self.announcedLimit : 0
        return text.withMemoryBIO { reactor_x509_trust(object.pointer, $0, announced) } ?? 0 > 0
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
    private func trustSystem() -> Bool {
        let directory = unsafe String(cString: reactor_tls_trust_folder())
        if let file = unsafe String(copying: reactor_tls_trust_file()) {
            return SSL_CTX_load_verify_file(object.pointer, file) == 1 && add(directory: FilePath(directory))
        }
        if Self.hasHashedNames(directory) { return add(directory: FilePath(directory)) }
        return SSL_CTX_set_default_verify_paths(object.pointer) == 1
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

    // MARK: Names

    /// Requires a peer certificate for the name, and sends that to the server unless it is an address.
    func setName(
        _ name: String?, of connection: borrowing OpenSSLConnection, _ peer: String
    ) throws(TLSError) {
        let verification = settings.verification
        guard let name else {
            if verification == .full { throw TLSError(.noName, peer: peer) }
            return
        }
        if let address = SocketAddress(name, port: 0) {
            guard verification != .full || connection.check(address) else {
                throw TLSError.settings("the address \(name) cannot be checked")
            }
            return
        }
        // OpenSSL would take a leading dot for all subdomains, and end the name at a null byte. The others are
        // in addresses only, such as one with an interface that this machine does not have.
        let isName = !name.hasPrefix(".") && name.utf8.allSatisfy { $0 > 0x20 && !"[]:%".utf8.contains($0) }
        let isChecked = verification != .full || connection.check(name)
        guard isName && isChecked && connection.send(name: name) else {
            throw TLSError(.invalidSettings("\(name) is not a host's name"), peer: peer)
        }
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

    private func setSessions() {
        let isServer = settings.role == .server
        if settings.resumesSessions {
            unsafe reactor_tls_keep_sessions(object.pointer, isServer, keepSession)
        } else {
            reactor_tls_forbid_sessions(object.pointer, isServer)
        }
    }

    /// The last session with a host. One of TLS 1.3 is not used again, so that an observer cannot link
    /// connections.
    func session(with host: [UInt8], at now: ContinuousClock.Instant = .now) -> Session? {
        sessions.withLock { sessions in
            guard let session = sessions.value(for: host) else { return nil }
            let version = SSL_SESSION_get_protocol_version(session.object.pointer)
            let isOld = session.verification.duration(to: now) > Self.verificationLifetime
            if isOld || version >= TLS1_3_VERSION { sessions.remove(host) }
            return isOld ? nil : session
        }
    }

    func keep(_ session: Session, with host: [UInt8]) {
        sessions.withLock { $0.set(session, for: host) }
    }

    /// The context of a connection that calls back.
    ///
    /// `@safe`: a connection's transport retains the context.
    @safe
    fileprivate static func of(_ ssl: OpaquePointer?) -> TLSContext {
        unsafe CallbackContext.object(reactor_tls_context_data(ssl))
    }
}

// MARK: - Callbacks of OpenSSL, during a handshake

private func keepSession(_ ssl: OpaquePointer?, _ session: OpaquePointer?) -> CInt {
    let transport = TLSTransport.of(ssl)
    guard let host = transport.sessionKey else { return 0 }
    // The reference is this function's if it returns 1.
    guard let owned = unsafe OpenSSLObject(session, free: SSL_SESSION_free) else { return 0 }
    let former = SSL_session_reused(ssl) == 1 ? transport.offeredSession : nil
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
    for name in TLSContext.of(ssl).settings.applicationProtocols {
        guard let range = ranges[name] else { continue }
        unsafe selected?.pointee = offered?.advanced(by: range.lowerBound)
        unsafe size?.pointee = UInt8(range.count)
        return SSL_TLSEXT_ERR_OK
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL
}

private func selectCredential(_ ssl: OpaquePointer?, _: UnsafeMutableRawPointer?) -> CInt {
    guard let host = unsafe String(copying: SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name)) else {
        return 1
    }
    guard let credential = TLSContext.of(ssl).credentials.first(where: { $0.isFor(host) }) else {
        return 1
    }
    // Otherwise the first one stays, and is chosen if the client prefers its kind of key.
    SSL_certs_clear(ssl)
    return SSL_use_cert_and_key(
        ssl, credential.certificate.pointer, credential.key.pointer, credential.chain.pointer, 1)
}

private func verify(_ verification: OpaquePointer?, _: UnsafeMutableRawPointer?) -> CInt {
    let isValid = X509_verify_cert(verification) == 1
    let transport = TLSTransport.of(reactor_tls_verified(verification))
    guard let verifier = transport.verifier else { return isValid ? 1 : 0 }
    let chain = unsafe certificates(of: X509_STORE_CTX_get0_untrusted(verification))
    let code = isValid ? X509_V_OK : X509_STORE_CTX_get_error(verification)
    // The program may use other connections.
    transport.socket.leaveThreadMemory()
    let isAccepted = verifier.accepts(
        TLSPeerVerifier.Evidence(chain, name: transport.peerName, verification: code))
    // An error that the verification or the program has left would count as one of the handshake.
    ERR_clear_error()
    // Else the result stays, also if it is accepted: it is kept with the session.
    if isValid, !isAccepted {
        X509_STORE_CTX_set_error(verification, X509_V_ERR_APPLICATION_VERIFICATION)
    }
    return isAccepted ? 1 : 0
}
