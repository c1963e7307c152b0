import CReactorLibcurl
import Glibc
import Reactor

/// A transfer of libcurl's: its settings, and once it has begun, its state.
///
/// `@safe`: it owns its pointers, which end with it.
@safe
struct EasyHandle: ~Copyable {
    @safe private let pointer: UnsafeMutableRawPointer
    /// libcurl writes its reason for a failure here.
    private let reasonBuffer: UnsafeMutablePointer<CChar>
    private var headers = HeaderList()
    private var proxyHeaders = HeaderList()
    /// The first setting that libcurl has refused.
    private(set) var failure = CURLE_OK
    /// Whether libcurl decompresses bodies.
    private(set) var decodes = false

    /// Nil if there is no memory. `number` is the transfer's.
    init?(_ number: UInt64) {
        guard Libcurl.isReady, let pointer = unsafe curl_easy_init() else { return nil }
        unsafe self.pointer = pointer
        unsafe reasonBuffer = .allocate(capacity: Int(CURL_ERROR_SIZE))
        unsafe reasonBuffer.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        unsafe reactor_curl_set_buffer(pointer, CURLOPT_ERRORBUFFER, reasonBuffer)
        reactor_curl_set_number(pointer, number)
    }

    deinit {
        unsafe curl_easy_cleanup(pointer)
        unsafe reasonBuffer.deallocate()
    }

    /// What libcurl names the transfer by: its address.
    var identity: UInt { UInt(bitPattern: pointer) }

    // MARK: Settings

    mutating func set(_ option: CURLoption, _ value: Int) {
        note(reactor_curl_set_long(pointer, option, value))
    }

    mutating func set(_ option: CURLoption, offset: Int) {
        note(reactor_curl_set_offset(pointer, option, curl_off_t(offset)))
    }

    mutating func set(_ option: CURLoption, _ value: String?) {
        note(reactor_curl_set_string(pointer, option, value))
    }

    private mutating func setFields(_ requested: HTTPFields, hasBody: Bool) {
        var fields = requested
        if hasBody {
            // libcurl would wait a second for servers that do not know the expectation.
            if !fields.contains(.expect) { fields[.expect] = "" }
            // libcurl makes them itself, and would send the client's also after a redirect that drops the body.
            (fields[.contentLength], fields[.transferEncoding]) = (nil, nil)
        }
        // HTTP/1.1 has one line of cookies (RFC 6265, 5.4); `HTTPFields` has a field for each.
        if fields[fields: .cookie].count > 1, let cookies = fields[.cookie] {
            fields[fields: .cookie] = [HTTPField(name: .cookie, value: cookies)]
        }
        for field in fields {
            let isForProxy = field.name == .proxyAuthorization
            guard isForProxy ? proxyHeaders.append(field) : headers.append(field) else {
                return note(CURLE_OUT_OF_MEMORY)
            }
        }
        note(unsafe reactor_curl_set_list(pointer, CURLOPT_HTTPHEADER, headers.first))
        note(unsafe reactor_curl_set_list(pointer, CURLOPT_PROXYHEADER, proxyHeaders.first))
        set(CURLOPT_HEADEROPT, Int(CURLHEADER_SEPARATE))
    }

    mutating func limitProtocols() { note(reactor_curl_set_protocols(pointer)) }

    /// Lets the transfer end while its host's name is being resolved, without waiting for getaddrinfo(3).
    func detachResolver() { reactor_curl_detach_resolver(pointer) }

    /// `transfer` is called until this handle ends, and must be retained so long.
    func setCallbacks(to transfer: RunningTransfer, closingWith sockets: SocketTable) {
        unsafe reactor_curl_set_callbacks(
            pointer, CallbackContext.address(of: transfer), RunningTransfer.callbacks)
        unsafe reactor_curl_set_close(
            pointer, SocketTable.closeCallback, CallbackContext.address(of: sockets))
    }

    private mutating func note(_ code: CURLcode) {
        if failure == CURLE_OK { failure = code }
    }

    // MARK: State

    /// Continues in both directions. Calls the callbacks for bytes that were held.
    func unpause() -> CURLcode { curl_easy_pause(pointer, 0) }

    // In a callback, which may be inside `unpause()`: these are not mutating.

    /// Ends the transfer with the current response.
    func stopFollowingRedirects() { reactor_curl_set_long(pointer, CURLOPT_FOLLOWLOCATION, 0) }

    /// Refuses a redirect to `http`, as an error.
    func forbidPlainRedirects() -> CURLcode { reactor_curl_forbid_plain_redirects(pointer) }

    /// Whether the URL of the last request, or of the redirect that libcurl has refused, has a scheme.
    func hasURL(_ scheme: String) -> Bool {
        text(CURLINFO_EFFECTIVE_URL)?.lowercased().hasPrefix(scheme) == true
    }

    /// Leaves the method of the next request to libcurl: GET, or still HEAD.
    func resetMethod() { reactor_curl_set_string(pointer, CURLOPT_CUSTOMREQUEST, nil) }

    func number(_ information: CURLINFO) -> Int {
        var value = 0
        reactor_curl_get_long(pointer, information, &value)
        return value
    }

    func text(_ information: CURLINFO) -> String? {
        var value: UnsafePointer<CChar>?
        reactor_curl_get_string(pointer, information, &value)
        return unsafe String(copying: value)
    }

    /// Why the transfer has failed.
    func reason(_ code: CURLcode) -> String {
        let detail = unsafe String(cString: reasonBuffer)
        return detail.isEmpty ? unsafe String(cString: curl_easy_strerror(code)) : detail
    }
}

/// Lines of a request's head.
///
/// `@safe`: it owns the list.
@safe
private struct HeaderList: ~Copyable {
    @safe private(set) var first: UnsafeMutablePointer<curl_slist>?

    deinit { unsafe curl_slist_free_all(first) }

    /// False if there is no memory.
    mutating func append(_ field: HTTPField) -> Bool {
        // libcurl doesn't send a field without a value.
        let start = "\(field.name): ".utf8.map(CChar.init(bitPattern:))
        // Not as a string: the value need not be UTF-8.
        let value = unsafe field.withUnsafeBytesOfValue { unsafe $0.map(CChar.init(bitPattern:)) }
        let line = start + value + [0]
        guard let longer = unsafe curl_slist_append(first, line) else { return false }
        unsafe first = longer
        return true
    }
}

extension EasyHandle {
    /// libcurl's buffer for each transfer. Measured: 100 to 256 KiB cost least, and the default of 16 KiB a third more; from
    /// 128 KiB on malloc(3) maps memory for each transfer.
    private static let bufferSize = 102_400

    /// How much libcurl keeps of a body that has paused: the rest of what it decodes. It fails if that is more.
    static let pausedLimit = 64 << 20

    /// The buffer of a body that may be decoded. What gzip makes of it, 1032 times as much at most, is below the limit.
    /// Measured: a body that is not compressed costs 15 ms more for each gigabyte. Its head comes too late
    /// for the larger buffer: CURLOPT_BUFFERSIZE(3) must not change during a transfer.
    private static let decodedBufferSize = 61_440

    /// Longer than any transfer: the session has timeouts of its own, and libcurl's default is five minutes.
    private static let noTimeout = Int(Int32.max)

    /// - Parameters:
    ///   - decodes: Whether the body's destination takes a decoded body.
    ///   - bodyLength: Nil if the request has no body; `.some(nil)` if its length is not known.
    mutating func configure(
        _ request: HTTPRequest, _ configuration: HTTPSession.Configuration, decodes: Bool, bodyLength: Int??
    ) {
        limitProtocols()
        detachResolver()
        set(CURLOPT_NOSIGNAL, 1)
        set(CURLOPT_NOPROGRESS, 1)
        set(CURLOPT_UPLOAD_BUFFERSIZE, Self.bufferSize)
        set(CURLOPT_CONNECTTIMEOUT_MS, Self.noTimeout)
        set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        set(CURLOPT_URL, request.target)
        set(CURLOPT_FOLLOWLOCATION, configuration.maxRedirects > 0 ? 1 : 0)
        set(CURLOPT_MAXREDIRS, configuration.maxRedirects)
        set(CURLOPT_USERAGENT, configuration.userAgent)
        self.decodes =
            configuration.acceptsCompressedBodies && decodes
            && !request.headerFields.contains(.acceptEncoding)
        if self.decodes { set(CURLOPT_ACCEPT_ENCODING, "") }
        set(CURLOPT_BUFFERSIZE, self.decodes ? Self.decodedBufferSize : Self.bufferSize)
        if case .http1 = configuration.versions { set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1) }
        setTrust(configuration)
        setMethod(request.method, bodyLength: bodyLength)
        setFields(request.headerFields, hasBody: bodyLength != nil)
    }

    private mutating func setTrust(_ configuration: HTTPSession.Configuration) {
        if let roots = configuration.trustRoots {
            set(CURLOPT_CAINFO, roots.string)
            set(CURLOPT_CAPATH, nil)
        } else if let folder = Libcurl.trustFolder {
            set(CURLOPT_CAINFO, nil)
            set(CURLOPT_CAPATH, folder)
        }
        if case .insecureNone = configuration.serverVerification {
            set(CURLOPT_SSL_VERIFYPEER, 0)
            set(CURLOPT_SSL_VERIFYHOST, 0)
        }
    }

    private mutating func setMethod(_ method: HTTPRequest.Method, bodyLength: Int??) {
        switch (method, bodyLength) {
        case (.get, nil): set(CURLOPT_HTTPGET, 1)
        case (.head, nil): set(CURLOPT_NOBODY, 1)
        case (.post, let length):
            set(CURLOPT_POST, 1)
            set(CURLOPT_POSTFIELDSIZE_LARGE, offset: (length ?? 0) ?? -1)
        case (_, let length?):
            set(CURLOPT_UPLOAD, 1)
            set(CURLOPT_INFILESIZE_LARGE, offset: length ?? -1)
            if method != .put { set(CURLOPT_CUSTOMREQUEST, method.rawValue) }
        default: set(CURLOPT_CUSTOMREQUEST, method.rawValue)
        }
    }
}

/// libcurl's global state.
enum Libcurl {
    /// Whether libcurl has been initialized, for the life of the process.
    static let isReady = reactor_curl_initialize() == CURLE_OK

    /// A folder of trust roots that are found by the hash of their names, which costs less than to read all of them.
    static let trustFolder: String? = {
        unsafe String(copying: reactor_curl_version().pointee.capath)
    }()

    /// Whether OpenSSL writes to connections itself, without MSG_NOSIGNAL. From 7.88 on libcurl does.
    private static let raisesSignals = unsafe reactor_curl_version().pointee.version_num < 0x07_58_00

    /// Calls libcurl without a SIGPIPE.
    static func call<Result>(_ body: () -> Result) -> Result {
        guard raisesSignals else { return body() }
        var (signals, before) = (sigset_t(), sigset_t())
        unsafe sigemptyset(&signals)
        unsafe sigaddset(&signals, SIGPIPE)
        unsafe pthread_sigmask(SIG_BLOCK, &signals, &before)
        defer {
            if unsafe sigismember(&before, SIGPIPE) == 0 {
                var none = timespec()
                while unsafe sigtimedwait(&signals, nil, &none) < 0, errno == EINTR {}
                unsafe pthread_sigmask(SIG_UNBLOCK, &signals, nil)
            }
        }
        return body()
    }
}

extension HTTPError.Kind {
    /// CURLE_TOO_LARGE, which older versions of libcurl do not have.
    private static let tooLarge = CURLcode(100)

    /// The meaning of libcurl's code (libcurl-errors(3)).
    init(_ code: CURLcode) {
        switch code {
        case CURLE_URL_MALFORMAT, CURLE_UNSUPPORTED_PROTOCOL: self = .invalidURL
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY: self = .resolve
        case CURLE_COULDNT_CONNECT, CURLE_PROXY: self = .connect
        case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE,
            CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER, CURLE_SSL_ISSUER_ERROR:
            self = .tls
        case CURLE_PARTIAL_FILE: self = .truncated
        case CURLE_GOT_NOTHING, CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_HTTP2_STREAM: self = .connectionLost
        case CURLE_TOO_MANY_REDIRECTS: self = .tooManyRedirects
        case CURLE_SEND_FAIL_REWIND: self = .bodyNotRepeatable
        case CURLE_WEIRD_SERVER_REPLY, Self.tooLarge, CURLE_BAD_CONTENT_ENCODING, CURLE_HTTP2:
            self = .invalidResponse
        default: self = .libcurl(Int(code.rawValue))
        }
    }
}
