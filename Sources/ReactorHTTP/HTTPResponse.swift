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

extension HTTPResponse: CustomStringConvertible, CustomReflectable {
    /// The version, the status, the URL without a user and a password, and the number of the body's bytes.
    public var description: String {
        "\(version.rawValue) \(status) of \(HTTPError.withoutUser(url).withVisibleControls), \(body.count) bytes in memory"
    }

    /// The properties, without credentials.
    public var customMirror: Mirror {
        let children: KeyValuePairs<String, Any> = [
            "status": status, "fields": fields, "url": HTTPError.withoutUser(url), "version": version,
            "body": body,
        ]
        return Mirror(self, children: children, displayStyle: .struct)
    }
}

extension HTTPResponse {
    /// Collects the lines of response heads. Pure: knows nothing of connections.
    struct HeadParser {
        enum Line {
            case status
            case field
            /// The empty line that ends the head of a final response, not of an interim one (1xx).
            case end
            /// The head, or the trailers, have more bytes than ``limit``.
            case tooLarge
        }

        private enum Part {
            case statusLine
            case head
            case trailers
        }

        /// The most bytes of a head, with the interim ones before it, and of the trailers; which is libcurl's limit from 8.3
        /// on. libcurl keeps all of them in memory.
        static let limit = 300 << 10

        private(set) var status = 0
        private(set) var version = HTTPResponse.Version.http11
        private(set) var fields = HTTPFields()
        /// The value of Content-Length.
        private var length: String?
        /// Whether there are two values of it: another program may read another body.
        private(set) var hasTwoLengths = false
        /// Whether a line names another location. libcurl ignores one in the continuation of a line.
        private var hasLocation = false
        private var part = Part.statusLine
        private var byteCount = 0

        var isInHead: Bool { part == .head }
        /// Whether the head of the final response is complete.
        var hasEnded: Bool { part == .trailers }
        private var isTooLarge: Bool { byteCount > Self.limit }
        /// Why the response is refused, as a clause; nil if it is not.
        var fault: String? {
            if isTooLarge {
                return "\(hasEnded ? "the trailers have" : "the head has") more than \(Self.limit) bytes"
            }
            return hasTwoLengths ? "Content-Length has two values" : nil
        }
        /// Whether the status is one that sends a request elsewhere (RFC 9110, 15.4).
        var isRedirect: Bool { [301, 302, 303, 307, 308].contains(status) }
        /// Whether libcurl follows the response if it follows redirects.
        var redirects: Bool { isRedirect && hasLocation }

        /// Takes one line of the response to one request: of a head, or a trailer, whatever they look like.
        mutating func take(_ line: [UInt8]) -> Line {
            byteCount += line.count
            if isTooLarge { return .tooLarge }
            switch part {
            case .statusLine:
                begin(String(decoding: Self.trimmed(line[...]), as: UTF8.self))
                return .status
            // As for libcurl: a line of white space continues the one before.
            case .head where line.first == 13 || line.first == 10: return end()
            case .head: takeField(Self.trimmed(line[...]), continues: line.first == 32 || line.first == 9)
            case .trailers: break
            }
            return .field
        }

        private mutating func end() -> Line {
            if (100..<200).contains(status) {
                part = .statusLine
            } else {
                (part, byteCount) = (.trailers, 0)
            }
            return status >= 200 ? .end : .field
        }

        private mutating func takeField(_ text: ArraySlice<UInt8>, continues: Bool) {
            if continues { return fields.continueLast(String(decoding: text, as: UTF8.self)) }
            guard let colon = text.firstIndex(of: UInt8(ascii: ":")) else { return }
            let name = String(decoding: text[..<colon], as: UTF8.self)
            let value = String(decoding: Self.trimmed(text[(colon + 1)...]), as: UTF8.self)
            fields.append(name, value)
            if !value.isEmpty, HTTPFields.matches(name, "Location") { hasLocation = true }
            if HTTPFields.matches(name, "Content-Length") {
                hasTwoLengths = hasTwoLengths || value != length ?? value
                length = value
            }
        }

        private mutating func begin(_ statusLine: String) {
            let words = statusLine.split(separator: " ", maxSplits: 2)
            (part, fields, hasLocation) = (.head, HTTPFields(), false)
            (length, hasTwoLengths) = (nil, false)
            status = words.count > 1 ? Int(words[1]) ?? 0 : 0
            version =
                switch words.first {
                case "HTTP/1.0": .http10
                case "HTTP/2", "HTTP/2.0": .http2
                case "HTTP/3", "HTTP/3.0": .http3
                default: .http11
                }
        }

        /// Without white space around it, of which libcurl counts the vertical tab and the form feed, too.
        private static func trimmed(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
            func isSpace(_ byte: UInt8) -> Bool { byte == 32 || (9...13).contains(byte) }
            let start = bytes.drop(while: isSpace)
            return start.prefix(through: start.lastIndex { !isSpace($0) } ?? start.startIndex - 1)
        }
    }
}
