extension HTTPTransfer {
    /// A response: its head, where it came from, and its body if that was collected in memory.
    public struct Response: Sendable, Hashable {
        /// The version of HTTP that a response was sent with. The raw value is the name of the protocol, such as `HTTP/1.1`.
        @nonexhaustive public enum Version: String, Sendable {
            /// HTTP/1.0.
            case http10 = "HTTP/1.0"
            /// HTTP/1.1.
            case http11 = "HTTP/1.1"
            /// HTTP/2.
            case http2 = "HTTP/2"
            /// HTTP/3.
            case http3 = "HTTP/3"
        }

        /// The status and the header fields, in the order in which they were received. Fields whose names are not tokens are
        /// left out.
        public let head: HTTPResponse
        /// The URL that was loaded, after redirects.
        public internal(set) var url: String
        /// The version of HTTP.
        public let version: Version
        /// The body, if the request was started with ``HTTPDestination/memory(limit:)``; otherwise empty.
        public internal(set) var body: [UInt8] = []

        /// The status, such as 200.
        public var status: HTTPResponse.Status { head.status }
        /// The header fields.
        public var headerFields: HTTPFields { head.headerFields }

        /// The length of the body as it is sent, from `Content-Length`; nil if the server has not announced it. A compressed
        /// body is longer once it is decoded.
        public var contentLength: Int? {
            headerFields.first(.contentLength).flatMap { Int($0) }.flatMap { $0 < 0 ? nil : $0 }
        }
    }
}

// What print and dump show, which ends up in logs: no credentials.
extension HTTPTransfer.Response: CustomStringConvertible, CustomReflectable {
    /// The version, the status code, the URL without a user and a password, and the number of the body's bytes.
    public var description: String {
        "\(version.rawValue) \(status.code) of \(HTTPError.withoutUser(url).withVisibleControls), \(body.count) bytes in memory"
    }

    /// The properties, without credentials.
    public var customMirror: Mirror {
        let fields = headerFields.map { $0.name == .setCookie ? "\($0.name): (not shown)" : "\($0)" }
        let children: KeyValuePairs<String, Any> = [
            "status": status.code, "headerFields": fields, "url": HTTPError.withoutUser(url),
            "version": version, "body": body,
        ]
        return Mirror(self, children: children, displayStyle: .struct)
    }
}
