import Reactor
import ReactorTestSupport
import SystemPackage

/// A client of an example program. Its calls wait.
final class Caller: Sendable {
    private let peer: SocketPeer

    var descriptor: FileDescriptor { peer.descriptor }

    /// Connects to where a server has said, in its first line, that it listens.
    init(_ announcement: String) throws {
        let place = announcement.dropFirst("Listening on ".count).dropLast()
        guard let address = SocketAddress(String(place)) else { throw Errno.invalidArgument }
        peer = try SocketPeer(connectedTo: address)
    }

    func say(_ text: String) throws { try descriptor.writeAll(Array(text.utf8)) }

    /// Waits for something, at most so many bytes; nothing at the end.
    func hearSome(atMost count: Int = .max) throws -> [UInt8] {
        try [UInt8](unsafeUninitializedCapacity: min(count, 65_536)) { buffer, filled in
            filled = try descriptor.read(into: UnsafeMutableRawBufferPointer(buffer))
        }
    }

    /// Waits for `count` bytes, or the end.
    func hear(bytes count: Int) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count, case let some = try hearSome(atMost: count - bytes.count), !some.isEmpty {
            bytes += some
        }
        return bytes
    }

    /// Waits for a line; nil at the end.
    func hearLine() throws -> String? {
        var bytes: [UInt8] = []
        while let byte = try hearSome(atMost: 1).first {
            if byte == UInt8(ascii: "\n") { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
        return nil
    }

    /// Says that nothing more will come.
    func finish() { peer.shutDown() }
}
