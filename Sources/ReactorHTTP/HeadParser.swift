/// Collects the lines of response heads. Pure: knows nothing of connections.
struct HeadParser {
    enum Line {
        case status
        case field
        /// The empty line that ends the head of a final response, not of an interim one (1xx).
        case end
        /// The head, or the trailers, have more bytes than ``limit``, or the head has too many fields.
        case tooLarge
    }

    private enum Part {
        case statusLine
        case head
        case trailers
    }

    /// The maximum number of bytes of a head, with the interim ones before it, and of the trailers; which is libcurl's limit
    /// from 8.3 on. libcurl keeps all of them in memory.
    static let limit = 300 << 10

    /// `HTTPFields` traps on more.
    private static let mostFields = Int(UInt16.max) - 1

    /// 0 if it is malformed.
    private(set) var status = 0
    private var reason = ""
    private(set) var version = HTTPTransfer.Response.Version.http11
    private var fields = HTTPFields()
    /// The field that the next line may continue. Its value grows outside `fields`, which would check it each time.
    private var last: (name: HTTPField.Name?, value: ArraySlice<UInt8>)?
    /// The value of Content-Length.
    private var length: ArraySlice<UInt8>?
    /// Whether there are two values of it: another program may read another body.
    private(set) var hasTwoLengths = false
    /// Whether a line names another location. libcurl ignores one in the continuation of a line.
    private var hasLocation = false
    private var part = Part.statusLine
    private var byteCount = 0

    var isInHead: Bool { part == .head }
    /// Whether the head of the final response is complete.
    var hasEnded: Bool { part == .trailers }
    private var isTooLarge: Bool { byteCount > Self.limit || hasTooManyFields }
    private var hasTooManyFields: Bool { fields.count >= Self.mostFields }
    /// The status line and the fields, once the head is complete.
    var head: HTTPResponse {
        HTTPResponse(status: .init(code: status, reasonPhrase: reason), headerFields: fields)
    }
    /// Why the response is refused, as a clause; nil if it is not.
    var fault: String? {
        if hasTooManyFields { return "the head has \(Self.mostFields) fields or more" }
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
            begin(Self.trimmed(line[...]))
            return .status
        // As for libcurl: a line of white space continues the one before.
        case .head where line.first == 13 || line.first == 10: return end()
        case .head: takeField(Self.trimmed(line[...]), continues: line.first == 32 || line.first == 9)
        case .trailers: break
        }
        return .field
    }

    private mutating func end() -> Line {
        addLast()
        if (100..<200).contains(status) {
            part = .statusLine
        } else {
            (part, byteCount) = (.trailers, 0)
        }
        return status >= 200 ? .end : .field
    }

    private mutating func takeField(_ text: ArraySlice<UInt8>, continues: Bool) {
        if continues { return continueLast(text) }
        guard let colon = text.firstIndex(of: UInt8(ascii: ":")) else { return }
        addLast()
        let name = HTTPField.Name(String(decoding: text[..<colon], as: UTF8.self))
        let value = Self.trimmed(text[(colon + 1)...])
        last = (name, value)
        if !value.isEmpty, name == .location { hasLocation = true }
        if name == .contentLength {
            hasTwoLengths = hasTwoLengths || value != length ?? value
            length = value
        }
    }

    private mutating func continueLast(_ text: ArraySlice<UInt8>) {
        guard !text.isEmpty, last != nil else { return }
        if last?.value.isEmpty == false { last?.value.append(UInt8(ascii: " ")) }
        last?.value += text
    }

    private mutating func addLast() {
        guard let (name, value) = last.take(), let name else { return }
        fields.append(HTTPField(name: name, lenientValue: value))
    }

    private mutating func begin(_ statusLine: ArraySlice<UInt8>) {
        let words = statusLine.split(separator: UInt8(ascii: " "), maxSplits: 2)
            .map { String(decoding: $0, as: UTF8.self) }
        (part, fields, last, hasLocation) = (.head, HTTPFields(), nil, false)
        (length, hasTwoLengths) = (nil, false)
        status = words.count > 1 ? Int(words[1]).flatMap { 0...999 ~= $0 ? $0 : nil } ?? 0 : 0
        reason = words.count > 2 ? words[2] : ""
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
