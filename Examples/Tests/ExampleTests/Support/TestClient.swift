import ExampleTestSupport
import Glibc
import Reactor
import SystemPackage

/// A client of an example program.
extension SocketPeer {
    /// Connects to the address in a server's first line of output.
    convenience init(_ firstLine: String) throws {
        let text = firstLine.dropFirst("Listening on ".count).dropLast()
        guard let address = SocketAddress(String(text)) else { throw Errno.invalidArgument }
        try self.init(connectedTo: address)
    }

    /// Whether the kernel takes more bytes now.
    var isWritable: Bool {
        var state = pollfd(fd: number, events: Int16(POLLOUT), revents: 0)
        return poll(&state, 1, 0) == 1
    }

    func send(_ text: String) { send(Array(text.utf8)) }

    /// Receives a line; nil at the end.
    func receiveLine() -> String? {
        var bytes: [UInt8] = []
        while let byte = receive(upTo: 1)?.first {
            if byte == UInt8(ascii: "\n") { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
        return nil
    }
}
