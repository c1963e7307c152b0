public import Reactor

/// A request: a method, a URL, header fields and perhaps a body.
///
/// ```swift
/// var request = HTTPRequest("https://example.org/items", method: "POST")
/// request.fields["Content-Type"] = "application/json"
/// request.body = .bytes(Array(#"{"name": "pencil"}"#.utf8))
/// ```
public struct HTTPRequest: Sendable {
    /// The method, in the case in which it is sent.
    public var method: String
    /// An absolute URL with the scheme `http` or `https`, such as `https://example.org/`. Characters that a URL must not
    /// have are to be percent-encoded.
    public var url: String
    /// The header fields to send. libcurl adds `Host`, `Accept`, `Content-Length` and the like.
    ///
    /// A field replaces the one of that name that libcurl would add. A field with an empty value is not sent: it only
    /// prevents libcurl's.
    ///
    /// It is an error if `Content-Length` is not the body's length, or if `Transfer-Encoding` is not how the body is sent.
    public var fields: HTTPFields
    /// The body; nil for none. A HEAD request has none.
    public var body: Body?

    /// Makes a request.
    public init(_ url: String, method: String = "GET", fields: HTTPFields = [:], body: Body? = nil) {
        self.url = url
        self.method = method
        self.fields = fields
        self.body = body
    }

    /// The body of a request.
    public struct Body: Sendable {
        enum Source: Sendable {
            case bytes([UInt8])
            case file(FilePath)
            case stream(Transferred<InputStream>, length: Int?)
        }

        let source: Source

        /// A body in memory.
        public static func bytes(_ bytes: [UInt8]) -> Body { Body(source: .bytes(bytes)) }

        /// The file at `path`, which is read while it is sent.
        ///
        /// Of a regular file as many bytes are sent as it has at the beginning: not those that are appended meanwhile, and
        /// it is an error if bytes are removed. A FIFO, a device, or a file of `/proc` or `/sys`, whose length only reading
        /// shows, is sent to its end, by HTTP/1.1 in chunks. A FIFO or a device can be sent once, as a stream can.
        public static func file(_ path: FilePath) -> Body { Body(source: .file(path.resolved)) }

        /// A stream, which is read while it is sent. It can be sent once: a redirect that repeats the body fails, and the
        /// request is not retried.
        ///
        /// The session opens the stream, is its delegate, and closes it.
        /// - Parameters:
        ///   - stream: A stream that the caller uses no more.
        ///   - length: The number of bytes, if it is known; otherwise HTTP/1.1 sends the body in chunks. No more bytes are
        ///     sent, and it is an error if the stream has fewer.
        /// - Precondition: `length` is not negative.
        public static func stream(_ stream: sending InputStream, length: Int? = nil) -> Body {
            require(
                (length ?? 0) >= 0,
                "HTTPRequest.Body.stream must have a length of at least 0 (it is \(length ?? 0)).")
            return Body(source: .stream(Transferred(stream), length: length))
        }

        /// Closes the stream of a transfer that does not begin, or that has failed before the stream was used.
        func close() {
            if case .stream(let stream, _) = source { stream.take()?.close() }
        }
    }

    /// Why the request cannot be sent, whatever its body's length is; nil if it can.
    func fault(userAgent: String?) -> (kind: HTTPError.Kind, reason: String?)? {
        if !hasValidURL { return (.invalidURL, nil) }
        let reason: String? =
            if !HTTPFields.isToken(method) {
                "the method '\(method)' is not a token"
            } else if let fault = fields.fault {
                fault
            } else if userAgent.map(HTTPFields.isValue) == false {
                "the user agent has a control character"
            } else if method == "HEAD", body != nil {
                "a HEAD request has no body"
            } else {
                nil
            }
        return reason.map { (.invalidRequest, $0) }
    }

    /// Whether the URL has its scheme and a host, and no character that ends a URL early.
    var hasValidURL: Bool {
        let scheme = url.utf8.prefix { $0 != UInt8(ascii: ":") }
        let rest = url.utf8[scheme.endIndex...]
        return ["http", "https"].contains(String(url[..<scheme.endIndex]).lowercased())
            && rest.starts(with: "://".utf8)
            && rest.dropFirst(3).first.map { $0 != UInt8(ascii: "/") } == true
            && url.utf8.allSatisfy { $0 > 32 && $0 != 127 }
    }

    /// Whether the fields frame the body as it is sent; otherwise the server would take the end of the body for the
    /// beginning of the next request, or wait for more.
    ///
    /// - Parameter bodyLength: Nil if there is no body; `.some(nil)` if its length is not known.
    func framesBody(_ bodyLength: Int??) -> Bool {
        let lengths = fields.values(for: "Content-Length")
        let codings = fields.values(for: "Transfer-Encoding")
        return switch bodyLength {
        case nil: lengths.allSatisfy { $0.isEmpty || $0 == "0" } && codings.allSatisfy(\.isEmpty)
        case .some(nil): lengths.isEmpty && codings.allSatisfy { HTTPFields.matches($0, "chunked") }
        case let length??: lengths.allSatisfy { $0 == "\(length)" } && codings.isEmpty
        }
    }

    /// The URL up to its path.
    var host: Substring {
        let start = url.utf8.firstRange(of: "://".utf8)?.upperBound ?? url.startIndex
        return url[..<(url.utf8[start...].firstIndex { $0 == UInt8(ascii: "/") } ?? url.endIndex)]
    }

    /// Whether sending the request twice does the same as sending it once (RFC 9110, 9.2.2).
    var isIdempotent: Bool { ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"].contains(method) }
}
