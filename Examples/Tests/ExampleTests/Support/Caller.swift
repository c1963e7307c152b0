import Glibc
import SystemPackage

/// A client of an example program. Its calls wait.
final class Caller: Sendable {
    let descriptor: FileDescriptor

    /// Connects to where a server has said, in its first line, that it listens.
    init(_ announcement: String) throws {
        let place = announcement.dropFirst("Listening on ".count).dropLast()
        let number =
            place.hasPrefix("unix:") ? try Self.unixSocket(place.dropFirst(5)) : try Self.ipSocket(place)
        descriptor = FileDescriptor(rawValue: number)
    }

    deinit { try? descriptor.close() }

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
    func finish() { shutdown(descriptor.rawValue, CInt(SHUT_WR)) }

    private static func ipSocket(_ place: Substring) throws -> CInt {
        let parts = place.split(separator: ":")
        guard parts.count == 2, let port = UInt16(parts[1]) else { throw Errno.invalidArgument }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        guard inet_pton(AF_INET, String(parts[0]), &address.sin_addr) == 1 else {
            throw Errno.invalidArgument
        }
        return try connected(AF_INET, &address, MemoryLayout<sockaddr_in>.size)
    }

    private static func unixSocket(_ path: Substring) throws -> CInt {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        return try connected(AF_UNIX, &address, MemoryLayout<sockaddr_un>.size)
    }

    private static func connected(_ family: CInt, _ address: UnsafeRawPointer, _ size: Int) throws -> CInt {
        let number = socket(family, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw Errno(rawValue: errno) }
        guard connect(number, address.assumingMemoryBound(to: sockaddr.self), socklen_t(size)) == 0 else {
            defer { close(number) }
            throw Errno(rawValue: errno)
        }
        return number
    }
}
