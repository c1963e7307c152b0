import Glibc
import Reactor
import SystemPackage
import Testing

/// The origin of a pair of socket streams.
enum SocketOrigin: String, CaseIterable, Sendable, Codable {
    case host, ipv4, ipv6, path, abstract, descriptor

    /// The origins that have to be connected.
    static var connected: [SocketOrigin] { allCases.filter { $0 != .descriptor } }

    fileprivate var addressKind: AddressKind {
        switch self {
        case .host, .ipv4, .descriptor: .ipv4
        case .ipv6: .ipv6
        case .path: .path
        case .abstract: .abstract
        }
    }
}

/// A pair of socket streams and its peer.
final class SocketFixture {
    let origin: SocketOrigin
    private(set) var input: InputStream!
    private(set) var output: OutputStream!
    /// Nil for a descriptor, which is already connected.
    let server: SocketServer?
    private var knownPeer: SocketPeer?

    /// - Parameter isNarrow: Whether the kernel's buffers are small at both ends.
    init(_ origin: SocketOrigin = .ipv4, isNarrow: Bool = false) throws {
        self.origin = origin
        guard origin != .descriptor else {
            server = nil
            let (peer, other) = try SocketPeer.pair()
            if isNarrow { for number in [peer.number, other.rawValue] { SocketPeer.narrow(number) } }
            knownPeer = peer
            (input, output) = Stream.connection(descriptor: other, closeWhenDone: true)
            return
        }
        let server = try SocketServer(origin.addressKind, isNarrow: isNarrow)
        self.server = server
        (input, output) =
            origin == .host
            ? Stream.connection(toHost: "localhost", port: server.port)
            : Stream.connection(to: server.address)
    }

    /// The peer of the streams. Waits until one of them has been opened.
    var peer: SocketPeer {
        get throws {
            if let knownPeer { return knownPeer }
            let peer = try #require(try server?.accept())
            knownPeer = peer
            return peer
        }
    }

    var streams: [Stream] { [input, output] }

    func closeBoth() { for stream in streams { stream.close() } }

    func releaseStreams() { (input, output) = (nil, nil) }

    func releaseOutput() { output = nil }

    /// Opens both, off a loop, and waits until they are open.
    func openBoth() throws {
        for stream in streams { stream.open() }
        while streams.contains(where: { $0.streamStatus == .opening }) { sched_yield() }
        for stream in streams { try #require(stream.streamStatus == .open) }
        _ = try peer
    }

    /// Makes the kernel's buffers of the streams' socket small. The socket must exist.
    func narrow() throws {
        SocketPeer.narrow(
            try #require((input.property(forKey: .socketDescriptorKey) as? FileDescriptor)?.rawValue))
        try peer.narrow()
    }
}

/// The number of socket descriptors of the process. Only useful in a process in which no other test runs.
func openSockets() -> Int { openPaths().count { $0.hasPrefix("socket:") } }

extension FileDescriptor {
    /// The value of a socket's option; -1 if there is none.
    func socketOption(_ level: CInt, _ name: CInt) -> CInt {
        var (value, size) = (CInt(-1), socklen_t(MemoryLayout<CInt>.size))
        getsockopt(rawValue, level, name, &value, &size)
        return value
    }
}

extension OutputStream {
    /// Writes once, and returns how many of `bytes` were accepted; -1 for an error.
    func writeOnce(_ bytes: some Collection<UInt8>) -> Int {
        Array(bytes).withUnsafeBufferPointer { write($0.baseAddress!, maxLength: $0.count) }
    }
}
