public import Reactor

/// Why a transfer has failed: what happened, at which URL, and the reason that libcurl or the kernel gave.
///
/// ```swift
/// print(error)  // GET https://example.org/: connect: Connection refused
/// ```
public struct HTTPError: ReactorError, Hashable {
    /// The kind of a failure.
    @nonexhaustive public enum Kind: Sendable, Hashable {
        /// The URL is malformed, or its scheme is not `http` or `https`.
        case invalidURL
        /// The method, a header field or the user agent cannot be sent; or the body cannot, with that method or those
        /// fields.
        case invalidRequest
        /// The host's name, or the proxy's, has no address.
        case resolve
        /// No connection could be made.
        case connect
        /// The TLS handshake failed, or the server's certificate was refused.
        case tls
        /// A timeout of the session's configuration has passed.
        case timedOut(Timeout)
        /// ``HTTPTransfer/cancel()``, or the close of the stream from which
        /// its body was read.
        case cancelled
        /// The body is larger than the memory that was allowed for it, or than what is kept of a body that is decoded.
        case bodyTooLarge(limit: Int)
        /// A file was not downloaded because of the response's status.
        case status(HTTPResponse.Status)
        /// The connection ended before the body did, or the response had less of a file's rest than it announced.
        case truncated
        /// The connection broke, or the server ended it, or the transfer's stream of HTTP/2, without a whole response.
        case connectionLost
        /// The response does not conform to HTTP, or cannot be decoded.
        case invalidResponse
        /// There were more redirects than allowed.
        case tooManyRedirects
        /// A redirect led from `https` to `http`.
        case insecureRedirect
        /// The server wants the body again, which came from a stream and is gone.
        case bodyNotRepeatable
        /// The body of the request could not be read.
        case read(IOError)
        /// The body of the request has only `count` of the `length` bytes that have been announced to the server.
        case bodyTooShort(count: Int, length: Int)
        /// The body of the response could not be written.
        case write(IOError)
        /// The session was invalidated, or its loop's thread has ended.
        case sessionEnded
        /// Any other error of libcurl, by its number (libcurl-errors(3)).
        case libcurl(Int)
    }

    /// The timeouts of ``HTTPSession/Configuration``.
    @nonexhaustive public enum Timeout: Hashable, Sendable {
        /// Resolving the name, connecting and the TLS handshake took too long.
        case connect
        /// No byte was sent or received for too long.
        case idle
        /// The whole transfer took too long.
        case total
    }

    /// The kind of failure.
    public let kind: Kind
    /// The request's method and URL, without a user and a password. Control characters are escaped, as `\u{1B}`.
    public let subject: String
    /// The reason, in words. Control characters, which a server may have sent, are escaped.
    public let reason: String
    /// The error of the system call that failed; nil if there was none.
    public let errno: Errno?
    /// The head of the response that had been received when the transfer failed; nil if there was none. Its URL has no user
    /// and no password.
    public let response: HTTPTransfer.Response?

    init(
        _ kind: Kind, _ request: HTTPRequest, response: HTTPTransfer.Response? = nil, reason: String? = nil,
        errno: Errno? = nil
    ) {
        self.kind = kind
        subject = "\(request.method) \(Self.withoutUser(request.target))".withVisibleControls
        // libcurl's words for a failed connection repeat the host and leave out the reason.
        let reason = (kind == .connect ? errno.map { "\($0)" } : nil) ?? reason ?? kind.reason
        self.reason = reason.withVisibleControls
        self.errno = kind.errno ?? errno
        self.response = response.map { response in
            var response = response
            response.url = Self.withoutUser(response.url)
            return response
        }
    }

    static func withoutUser(_ url: String) -> String {
        let start = url.firstRange(of: "://")?.upperBound ?? url.startIndex
        let end = url[start...].firstIndex { "/?#".contains($0) } ?? url.endIndex
        guard let mark = url[start..<end].lastIndex(of: "@") else { return url }
        return String(url[..<start] + url[url.index(after: mark)...])
    }
}

extension String {
    /// With control characters escaped, so that another program's text neither changes a terminal nor begins a line.
    var withVisibleControls: String {
        unicodeScalars.reduce(into: "") { text, scalar in
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator:
                text += "\\u{\(String(scalar.value, radix: 16, uppercase: true))}"
            default: text.unicodeScalars.append(scalar)
            }
        }
    }
}

extension HTTPError: CustomStringConvertible {
    /// A line such as `GET https://example.org/: connect: Connection refused`.
    public var description: String { "\(subject): \(kind.name): \(reason)" }
}

extension HTTPError.Kind {
    /// The operation that failed, as messages name it.
    fileprivate var name: String {
        switch self {
        case .invalidURL, .invalidRequest: "request"
        case .resolve: "resolve"
        case .connect: "connect"
        case .tls: "tls"
        case .timedOut(let timeout): "timeout (\(timeout))"
        case .cancelled, .sessionEnded: "ended"
        case .read, .bodyTooShort: "read"
        case .write: "write"
        case .bodyTooLarge, .status, .truncated, .connectionLost, .invalidResponse, .tooManyRedirects:
            "response"
        case .bodyNotRepeatable, .insecureRedirect: "redirect"
        case .libcurl(let code): "libcurl error \(code)"
        }
    }

    fileprivate var reason: String {
        switch self {
        case .invalidURL: "the URL is malformed"
        case .invalidRequest: "the method, a header field, the user agent or the body cannot be sent"
        case .bodyTooShort(let count, let length): "the body has only \(count) of \(length) bytes"
        case .timedOut: "it took too long"
        case .cancelled: "the transfer was cancelled"
        case .sessionEnded: "the session, or its run loop's thread, has ended"
        case .bodyTooLarge(let limit): "the body has more than \(limit) bytes"
        case .status(let status): "the status is \(status.code)"
        case .truncated: "the connection ended before the body"
        case .connectionLost: "the connection was lost"
        case .invalidResponse: "the response is malformed"
        case .tooManyRedirects: "there were too many redirects"
        case .insecureRedirect: "from https to http"
        case .bodyNotRepeatable: "the body came from a stream and cannot be sent again"
        case .read(let error), .write(let error): "\(error)"
        case .resolve, .connect, .tls, .libcurl: "failed"
        }
    }

    /// The error of the body's file or stream.
    fileprivate var errno: Errno? {
        switch self {
        case .read(let error), .write(let error): error.errno
        default: nil
        }
    }

    /// Whether the same request may succeed a moment later.
    var isTransient: Bool {
        switch self {
        case .resolve, .connect, .truncated, .connectionLost, .timedOut(.connect), .timedOut(.idle): true
        case .status(let status): [408, 429, 500, 502, 503, 504].contains(status.code)
        default: false
        }
    }
}
