import Glibc

// Numeric IP addresses, as in RFC 4291, RFC 4007 (scopes) and RFC 5952. Unix-domain names have a prefix, and
// %XX for bytes that cannot be printed.

extension SocketAddress {
    /// Parses an address in the form of ``description``: `127.0.0.1:80`, `[::1]:80`, `[fe80::1%eth0]:80`,
    /// `unix:/run/a.sock`, `unix-abstract:name`.
    ///
    /// Nil for anything else, such as a host name, a port above 65535, or an interface that this machine does
    /// not have. A scope may be the name of an interface or its number.
    public init?(_ text: String) {
        if let path = text.dropping(prefix: "unix:") {
            self.init(unixText: path, isAbstract: false)
        } else if let name = text.dropping(prefix: "unix-abstract:") {
            self.init(unixText: name, isAbstract: true)
        } else {
            guard let colon = text.lastIndex(of: ":"),
                let port = UInt16(digits: text[text.index(after: colon)...])
            else { return nil }
            let host = text[..<colon]
            // Without brackets, the last group of an IPv6 address would be parsed as the port.
            guard host.first == "[" || !host.contains(":") else { return nil }
            self.init(String(host), port: port)
        }
    }

    /// Parses an IP address without a port: `127.0.0.1`, `::1`, `[::1]`, `fe80::1%eth0`. Nil for anything
    /// else.
    public init?(_ host: String, port: UInt16) {
        var text = host[...]
        let isBracketed = text.first == "["
        if isBracketed {
            guard text.last == "]", text.count > 2 else { return nil }
            text = text.dropFirst().dropLast()
        }
        guard !text.utf8.contains(0) else { return nil }
        if let address = UInt128(ipv6: text.prefix { $0 != "%" }) {
            guard let scope = UInt32(scope: text.drop { $0 != "%" }) else { return nil }
            self = .ipv6(address, port: port, scope: scope)
        } else {
            guard !isBracketed, let address = UInt32(ipv4: text) else { return nil }
            self = .ipv4(address, port: port)
        }
    }

    private init?(unixText text: Substring, isAbstract: Bool) {
        guard let bytes = Array(percentDecoding: text) else { return nil }
        if bytes.isEmpty, !isAbstract {
            self = .unixUnnamed
        } else {
            guard !bytes.isEmpty, bytes.count <= Self.unixNameLimit, isAbstract || !bytes.contains(0) else {
                return nil
            }
            self.init(.unix(isAbstract ? [0] + bytes : bytes))
        }
    }

    /// The numeric IP address without its port and brackets: `127.0.0.1`, `fe80::1%eth0`.
    public var host: String? {
        switch storage {
        case .ipv4(let address, _): address.ipv4Text
        case .ipv6(let address, _, 0, _): address.ipv6Text
        case .ipv6(let address, _, let scope, _): "\(address.ipv6Text)%\(NetworkInterface(index: scope))"
        case .unix, .other: nil
        }
    }
}

extension SocketAddress: LosslessStringConvertible {
    /// The address as text, which ``init(_:)-(String)`` parses, except for the flow information of IPv6 and for other
    /// families.
    ///
    /// `127.0.0.1:80`, `[fe80::1%eth0]:80`, `unix:/run/a.sock`, `unix-abstract:name`, and `unix:` for a
    /// socket without a name. Control bytes, `%`, and bytes that are not UTF-8 become %XX.
    public var description: String {
        switch storage {
        case .ipv4(_, let port), .ipv6(_, let port, _, _): endpointName(host!, port)
        case .unix(let bytes) where bytes.first == 0: "unix-abstract:" + percentEncoded(bytes.dropFirst())
        case .unix(let bytes): "unix:" + percentEncoded(bytes[...])
        case .other(let family, let bytes): "\(family), \(bytes.count) bytes"
        }
    }
}

/// A host and a port, as addresses and errors name them. An IPv6 address is in brackets.
func endpointName(_ host: String, _ port: UInt16) -> String {
    host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
}

// MARK: - Numbers

extension UInt16 {
    /// Parses decimal digits only: `UInt16(_:)` accepts a sign too.
    fileprivate init?(digits: Substring) {
        guard digits.utf8.allSatisfy(isDigit) else { return nil }
        self.init(digits)
    }
}

extension UInt32 {
    fileprivate init?(ipv4 text: Substring) {
        var bytes = in_addr()
        guard unsafe inet_pton(AF_INET, String(text), &bytes) == 1 else { return nil }
        self.init(bigEndian: bytes.s_addr)
    }

    /// Parses a percent sign and the name or number of an interface; 0 if the text is empty.
    fileprivate init?(scope text: Substring) {
        guard !text.isEmpty else {
            self = 0
            return
        }
        let name = text.dropFirst()
        if let interface = NetworkInterface(named: String(name)) {
            self = interface.index
        } else {
            guard name.utf8.allSatisfy(isDigit) else { return nil }
            self.init(name)
        }
    }

    fileprivate var ipv4Text: String {
        "\(self >> 24).\(self >> 16 & 0xFF).\(self >> 8 & 0xFF).\(self & 0xFF)"
    }
}

extension UInt128 {
    fileprivate init?(ipv6 text: Substring) {
        var bytes = UInt128()
        guard unsafe inet_pton(AF_INET6, String(text), &bytes) == 1 else { return nil }
        self.init(bigEndian: bytes)
    }

    fileprivate var ipv6Text: String {
        var bytes = bigEndian
        let size = INET6_ADDRSTRLEN
        return String(size: Int(size)) { unsafe inet_ntop(AF_INET6, &bytes, $0, socklen_t(size)) } ?? ""
    }
}

private func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
