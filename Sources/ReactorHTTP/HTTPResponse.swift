/// The head of a response, and its body if that was collected in memory.
public struct HTTPResponse: Sendable, Hashable {
    /// The version of HTTP that the response was sent with.
    public enum Version: String, Sendable {
        /// HTTP/1.0.
        case http10 = "HTTP/1.0"
        /// HTTP/1.1.
        case http11 = "HTTP/1.1"
        /// HTTP/2.
        case http2 = "HTTP/2"
        /// HTTP/3.
        case http3 = "HTTP/3"
    }

    /// The status code, such as 200.
    public let status: Int
    /// The header fields, in the order in which they were received.
    public let fields: HTTPFields
    /// The URL that was loaded, after redirects.
    public internal(set) var url: String
    /// The version of HTTP.
    public let version: Version
    /// The body, if the request was started with ``HTTPDestination/memory(limit:)``; otherwise empty.
    public internal(set) var body: [UInt8] = []

    /// Whether the status is one of 200 to 299.
    public var isSuccess: Bool { (200..<300).contains(status) }

    /// The length of the body as it is sent, from `Content-Length`; nil if the server has not announced it. A compressed
    /// body is longer once it is decoded.
    public var contentLength: Int? {
        fields["Content-Length"].flatMap { Int($0) }.flatMap { $0 < 0 ? nil : $0 }
    }
}

extension HTTPResponse {
    /// Collects the lines of response heads. Pure: knows nothing of connections.
    struct HeadParser {
        enum Line {
            case status
            case field
            /// The empty line that ends the head of a final response, which neither an interim one (1xx) nor a trailer has.
            case end
            /// The head has more bytes than ``limit``.
            case tooLarge
        }

        /// The most bytes of a head, which is libcurl's limit from 8.3 on.
        static let limit = 300 << 10

        private(set) var status = 0
        private(set) var version = HTTPResponse.Version.http11
        private(set) var fields = HTTPFields()
        /// Whether a line names another location. libcurl ignores one in the continuation of a line.
        private var hasLocation = false
        private(set) var isInHead = false
        private var byteCount = 0

        /// Whether the head has more bytes than ``limit``.
        var isTooLarge: Bool { byteCount > Self.limit }
        /// Whether the status is one that sends a request elsewhere (RFC 9110, 15.4).
        var isRedirect: Bool { [301, 302, 303, 307, 308].contains(status) }
        /// Whether libcurl follows the response if it follows redirects.
        var redirects: Bool { isRedirect && hasLocation }

        /// Takes one line of a head.
        mutating func take(_ line: [UInt8]) -> Line {
            let text = Self.trimmed(line[...])
            // A field may have any name. An interim response's head has ended before the next one begins.
            if !isInHead, line.starts(with: Array("HTTP/".utf8)) {
                begin(String(decoding: text, as: UTF8.self))
                byteCount = line.count
                return .status
            }
            guard isInHead else { return .field }
            byteCount += line.count
            if isTooLarge { return .tooLarge }
            if text.isEmpty {
                isInHead = false
                return status >= 200 ? .end : .field
            }
            takeField(text, continues: line.first == 32 || line.first == 9)
            return .field
        }

        private mutating func takeField(_ text: ArraySlice<UInt8>, continues: Bool) {
            if continues { return fields.continueLast(String(decoding: text, as: UTF8.self)) }
            guard let colon = text.firstIndex(of: UInt8(ascii: ":")) else { return }
            let name = String(decoding: text[..<colon], as: UTF8.self)
            let value = String(decoding: Self.trimmed(text[(colon + 1)...]), as: UTF8.self)
            fields.append(name, value)
            if !value.isEmpty, HTTPFields.matches(name, "Location") { hasLocation = true }
        }

        private mutating func begin(_ statusLine: String) {
            let words = statusLine.split(separator: " ", maxSplits: 2)
            self = HeadParser()
            isInHead = true
            status = words.count > 1 ? Int(words[1]) ?? 0 : 0
            version =
                switch words.first {
                case "HTTP/1.0": .http10
                case "HTTP/2", "HTTP/2.0": .http2
                case "HTTP/3", "HTTP/3.0": .http3
                default: .http11
                }
        }

        private static func trimmed(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
            func isSpace(_ byte: UInt8) -> Bool { byte == 32 || byte == 9 || byte == 13 || byte == 10 }
            let start = bytes.drop(while: isSpace)
            return start.prefix(through: start.lastIndex { !isSpace($0) } ?? start.startIndex - 1)
        }
    }
}
