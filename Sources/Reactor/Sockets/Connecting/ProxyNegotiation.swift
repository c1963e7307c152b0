/// Asks a proxy to connect to a host, by SOCKS 5, 4 or 4a, or by HTTP's CONNECT.
///
/// Pure: bytes in, bytes out. It never asks for more bytes than the reply has, because the host's first
/// bytes may follow.
struct ProxyNegotiation {
    /// The host to connect to.
    enum Target: Equatable {
        case name(String, port: UInt16)
        case address(SocketAddress)
    }

    /// The kind of the next bytes.
    private enum Expected {
        case method
        case authentication
        /// The fixed part of the reply, and the first byte of the address that follows.
        case reply
        /// The rest of the address, which tells nothing.
        case rest
        case socks4Reply
        case httpHead
        case nothing
    }

    /// Far more than a proxy has to say in HTTP, interim responses included.
    private static let longestReply = 16_384
    /// Long enough for a sentence, and short in an error.
    private static let longestPhrase = 100

    let proxy: StreamProxy
    private let target: Target
    private var expected = Expected.nothing
    private var received: [UInt8] = []
    private var wantedCount = 0
    private var totalCount = 0
    /// The bytes to send next.
    private(set) var output: [UInt8] = []

    init(_ proxy: StreamProxy, to target: Target) throws(IOError) {
        (self.proxy, self.target) = (proxy, target)
        switch proxy.kind {
        case .socks5:
            output = proxy.user == nil ? [5, 1, 0] : [5, 2, 0, 2]
            expect(.method, 2)
        case .socks4:
            output = try socks4Request()
            expect(.socks4Reply, 8)
        case .http:
            output = try httpRequest()
            expect(.httpHead, 4)
        }
    }

    var isComplete: Bool { expected == .nothing && output.isEmpty }

    /// The maximum number of bytes to receive next.
    var missingCount: Int { wantedCount - received.count }

    /// The output has been sent.
    mutating func takeOutput() -> [UInt8] {
        defer { output = [] }
        return output
    }

    /// Takes received bytes, at most ``missingCount``; none at the end.
    mutating func receive(_ bytes: some Collection<UInt8>) throws(IOError) {
        if bytes.isEmpty { throw error(.closed) }
        received += bytes
        totalCount += bytes.count
        guard missingCount <= 0 else { return }
        switch expected {
        case .method: try takeMethod()
        case .authentication:
            guard received[1] == 0 else { throw error(.authenticationFailed) }
            try request()
        case .reply: try takeReply()
        case .rest: expect(.nothing, 0)
        case .socks4Reply: try takeSocks4Reply()
        case .httpHead: try takeHead()
        case .nothing: break
        }
    }

    private mutating func expect(_ expected: Expected, _ count: Int) {
        (self.expected, wantedCount, received) = (expected, count, [])
    }

    private func error(_ failure: ProxyFailure) -> IOError {
        IOError(
            .connect, "\(target.text) through \(proxy.name)", .proxy(code: failure.cocoaCode, "\(failure)"))
    }

    // MARK: SOCKS 5

    private mutating func takeMethod() throws(IOError) {
        guard received[0] == 5 else { throw error(.notAProxy) }
        switch received[1] {
        case 0: try request()
        case 2 where proxy.user != nil:
            let (user, password) = (Array((proxy.user ?? "").utf8), Array((proxy.password ?? "").utf8))
            guard (1...255).contains(user.count), password.count <= 255 else { throw error(.cannotBeEncoded) }
            output = [1, UInt8(user.count)] + user + [UInt8(password.count)] + password
            expect(.authentication, 2)
        case 0xFF: throw error(proxy.user == nil ? .authenticationRequired : .noAcceptableMethod)
        default: throw error(.notAProxy)
        }
    }

    private mutating func request() throws(IOError) {
        let address: [UInt8]
        switch target.resolved {
        case .name(let name, _):
            guard (1...255).contains(name.utf8.count) else { throw error(.cannotBeEncoded) }
            address = [3, UInt8(name.utf8.count)] + Array(name.utf8)
        case .address(let target):
            guard let bytes = target.ipBytes else { throw error(.addressNotSupported) }
            address = [bytes.count == 4 ? 1 : 4] + bytes
        }
        output = [5, 1, 0] + address + target.portBytes
        expect(.reply, 5)
    }

    private mutating func takeReply() throws(IOError) {
        guard received[0] == 5 else { throw error(.notAProxy) }
        guard received[1] == 0 else { throw error(.init(socks5: received[1])) }
        switch received[3] {
        case 1: expect(.rest, 3 + 2)
        case 3: expect(.rest, Int(received[4]) + 2)
        case 4: expect(.rest, 15 + 2)
        default: throw error(.notAProxy)
        }
    }

    // MARK: SOCKS 4

    private func socks4Request() throws(IOError) -> [UInt8] {
        let user = Array((proxy.user ?? "").utf8)
        var (address, name): ([UInt8], [UInt8]) = ([0, 0, 0, 1], [])
        switch target.resolved {
        case .name(let text, _):
            guard !text.isEmpty, text.utf8.count <= 255 else { throw error(.cannotBeEncoded) }
            name = Array(text.utf8) + [0]
        case .address(let target):
            guard let bytes = target.ipBytes, bytes.count == 4 else { throw error(.addressNotSupported) }
            address = bytes
        }
        guard !user.contains(0), !name.dropLast().contains(0), user.count <= 255 else {
            throw error(.cannotBeEncoded)
        }
        return [4, 1] + target.portBytes + address + user + [0] + name
    }

    private mutating func takeSocks4Reply() throws(IOError) {
        guard received[0] == 0 else { throw error(.notAProxy) }
        switch received[1] {
        case 90: expect(.nothing, 0)
        case 91: throw error(.rejected)
        case 92, 93: throw error(.userUnknown)
        default: throw error(.code(received[1]))
        }
    }

    // MARK: HTTP

    private func httpRequest() throws(IOError) -> [UInt8] {
        // Nothing may end the line, or begin another one.
        guard target.text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw error(.cannotBeEncoded)
        }
        var text = "CONNECT \(target.text) HTTP/1.1\r\nHost: \(target.text)\r\n"
        if let user = proxy.user {
            guard !user.utf8.contains(UInt8(ascii: ":")) else { throw error(.cannotBeEncoded) }
            text += "Proxy-Authorization: Basic \(base64("\(user):\(proxy.password ?? "")".utf8))\r\n"
        }
        return Array((text + "\r\n").utf8)
    }

    /// Takes a part of the head, up to the empty line. Asks for no more bytes than the end of the line still needs at least.
    private mutating func takeHead() throws(IOError) {
        guard totalCount < Self.longestReply,
            Array("HTTP/".utf8).starts(with: received.prefix(5)) || received.starts(with: Array("HTTP/".utf8))
        else { throw error(.notAProxy) }
        let end: [UInt8] = [13, 10, 13, 10]
        if received.suffix(4).elementsEqual(end) { return try takeStatus() }
        let matched = (0...3).last { received.suffix($0).elementsEqual(end.prefix($0)) } ?? 0
        wantedCount = received.count + 4 - matched
    }

    private mutating func takeStatus() throws(IOError) {
        let line = received.prefix { $0 != 13 }
        let words = String(decoding: line, as: UTF8.self).split(separator: " ", maxSplits: 2)
        guard words.count >= 2, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else {
            throw error(.notAProxy)
        }
        // An interim response: the final one follows.
        if (100..<200).contains(status), status != 101 { return expect(.httpHead, 4) }
        let phrase = words.count > 2 ? Self.printable(words[2]) : ""
        guard (200..<300).contains(status) else {
            // tinyproxy says 401 to a wrong password.
            let isRefusal = status == 407 || status == 401
            let refusal =
                proxy.user == nil ? ProxyFailure.authenticationRequired : .authenticationFailed
            throw error(isRefusal ? refusal : .status(status, phrase))
        }
        expect(.nothing, 0)
    }

    /// A phrase without what would control the terminal that an error is printed on.
    private static func printable(_ phrase: Substring) -> String {
        String(
            String.UnicodeScalarView(
                phrase.unicodeScalars.prefix(longestPhrase).map {
                    (" "..."~").contains($0) ? $0 : "?"
                }))
    }
}

extension ProxyNegotiation.Target {
    /// The host and the port.
    var text: String {
        switch self {
        case .name(let name, let port): endpointName(name, port)
        case .address(let address): "\(address)"
        }
    }

    /// A numeric name is an address.
    fileprivate var resolved: Self {
        guard case .name(let name, let port) = self, let address = SocketAddress(name, port: port) else {
            return self
        }
        return .address(address)
    }

    fileprivate var portBytes: [UInt8] {
        let port =
            switch self {
            case .name(_, let port): port
            case .address(let address): address.port ?? 0
            }
        return [UInt8(port >> 8), UInt8(port & 255)]
    }
}

extension SocketAddress {
    /// The 4 or 16 bytes of an IP address, in network byte order.
    fileprivate var ipBytes: [UInt8]? {
        switch storage {
        case .ipv4(let number, _): (0..<4).map { UInt8(truncatingIfNeeded: number >> (24 - 8 * $0)) }
        case .ipv6(let number, _, _, _):
            (0..<16).map { UInt8(truncatingIfNeeded: number >> UInt128(120 - 8 * $0)) }
        case .unix, .other: nil
        }
    }
}

/// The base 64 encoding (RFC 4648, section 4).
func base64(_ bytes: some Sequence<UInt8>) -> String {
    let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    var (text, bytes) = ([UInt8](), Array(bytes)[...])
    while !bytes.isEmpty {
        let group = bytes.prefix(3)
        bytes = bytes.dropFirst(3)
        let bits = (Array(group) + [0, 0]).prefix(3).reduce(0) { $0 << 8 | Int($1) }
        for index in 0..<4 {
            text.append(index <= group.count ? digits[bits >> (18 - 6 * index) & 63] : UInt8(ascii: "="))
        }
    }
    return String(decoding: text, as: UTF8.self)
}
