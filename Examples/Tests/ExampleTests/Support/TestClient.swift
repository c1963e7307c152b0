import Glibc
import Reactor
import ReactorTestSupport
import SystemPackage

/// A client of an example program. Its methods block.
final class TestClient: Sendable {
    private let peer: SocketPeer

    var descriptor: FileDescriptor { peer.descriptor }

    /// Connects to the address in a server's first line of output.
    init(_ firstLine: String) throws {
        let text = firstLine.dropFirst("Listening on ".count).dropLast()
        guard let address = SocketAddress(String(text)) else { throw Errno.invalidArgument }
        peer = try SocketPeer(connectedTo: address)
    }

    /// Whether the kernel takes more bytes now.
    var isWritable: Bool {
        var state = pollfd(fd: descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
        return poll(&state, 1, 0) == 1
    }

    func send(_ text: String) throws { try descriptor.writeAll(Array(text.utf8)) }

    /// Receives at least one byte and at most `count`; none at the end.
    func receive(upTo count: Int = .max) throws -> [UInt8] {
        try [UInt8](unsafeUninitializedCapacity: min(count, 65_536)) { buffer, filled in
            filled = try descriptor.read(into: UnsafeMutableRawBufferPointer(buffer))
        }
    }

    /// Receives `count` bytes, or fewer if the end comes first.
    func receive(count: Int) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count, case let chunk = try receive(upTo: count - bytes.count), !chunk.isEmpty {
            bytes += chunk
        }
        return bytes
    }

    /// Receives a line; nil at the end.
    func receiveLine() throws -> String? {
        var bytes: [UInt8] = []
        while let byte = try receive(upTo: 1).first {
            if byte == UInt8(ascii: "\n") { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
        return nil
    }

    func shutDownWrites() { peer.shutDown() }
}
