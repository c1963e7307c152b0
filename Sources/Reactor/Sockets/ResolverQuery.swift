import Glibc
import SystemPackage

/// What to ask getaddrinfo(3) for.
struct ResolverQuery: Sendable {
    enum Service: Sendable {
        case port(UInt16)
        case name(String)
    }

    let host: String
    let service: Service
    var transport = Resolver.Transport.stream
    var family = SocketAddress.Family.unspecified

    /// The answer that needs no asking: of a host in numbers, with a port.
    var numericAnswer: [SocketAddress]? {
        guard case .port(let port) = service, let address = SocketAddress(host, port: port),
            family == .unspecified || family == address.family
        else { return nil }
        return [address]
    }

    /// Asks, on this thread, for as long as it takes.
    func ask() -> Result<[SocketAddress], ResolverError> {
        guard !host.isEmpty, !host.utf8.contains(0) else { return .failure(.unknownName) }
        if case .name(let name) = service, name.isEmpty || name.utf8.contains(0) {
            return .failure(.unknownService)
        }
        // Without an IPv6 address there is no point in asking for others', nor without IPv4 in theirs. But the
        // machine's loopback addresses do not count as addresses here, so what is on this machine itself may be
        // missed: its usual name is not asked for like that, and others are asked for once more.
        guard family == .unspecified, !isLocalHost else { return ask(flags: 0) }
        let answer = ask(flags: AI_ADDRCONFIG)
        switch answer {
        case .failure(.unknownName), .failure(.noAddress), .failure(.noAddressInFamily): return ask(flags: 0)
        default: return answer
        }
    }

    /// Whether the name is kept for this machine itself (RFC 6761).
    private var isLocalHost: Bool {
        let name = host.lowercased()
        return ["localhost", "localhost."].contains { name == $0 || name.hasSuffix("." + $0) }
    }

    private func ask(flags: CInt) -> Result<[SocketAddress], ResolverError> {
        let (name, serviceFlags): (String, CInt) =
            switch service {
            case .port(let port): ("\(port)", AI_NUMERICSERV)
            case .name(let name): (name, 0)
            }
        var hints = unsafe addrinfo()
        unsafe hints.ai_flags = flags | serviceFlags
        unsafe hints.ai_family = CInt(family.rawValue)
        unsafe hints.ai_socktype = CInt(transport.socketType.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let code = unsafe getaddrinfo(host, name, &hints, &list)
        let systemCode = errno  // before anything else can overwrite it
        guard code == 0 else {
            return .failure(
                ResolverError(code, systemError: code == EAI_SYSTEM ? Errno(rawValue: systemCode) : nil))
        }
        defer { unsafe freeaddrinfo(list) }
        return .success(unsafe Self.addresses(in: list))
    }

    /// The addresses in their order; one that a hosts file names twice comes once.
    private static func addresses(in list: UnsafeMutablePointer<addrinfo>?) -> [SocketAddress] {
        var addresses: [SocketAddress] = []
        var next = unsafe list
        while let entry = unsafe next {
            if let raw = unsafe entry.pointee.ai_addr,
                let address = unsafe SocketAddress(raw, length: entry.pointee.ai_addrlen),
                !addresses.contains(address)
            {
                addresses.append(address)
            }
            unsafe next = entry.pointee.ai_next
        }
        return addresses
    }
}

extension Resolver.Transport {
    fileprivate var socketType: __socket_type { self == .stream ? SOCK_STREAM : SOCK_DGRAM }
}
