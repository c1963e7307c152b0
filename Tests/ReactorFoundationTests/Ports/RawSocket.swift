import Glibc
import Reactor
import ReactorFoundation

/// A TCP socket without anything of the library's; its calls wait.
final class RawSocket: Sendable {
    let number: Int32

    private init(_ number: Int32) { self.number = number }

    deinit { close(number) }

    /// A socket that has an address of this machine, and does not listen.
    static func bound() -> RawSocket {
        let made = RawSocket(socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0))
        let code = SocketAddress.ipv4Loopback(port: 0).withSockAddr { bind(made.number, $0, $1) }
        precondition(code == 0)
        return made
    }

    /// A socket that listens on this machine.
    static func listening() -> RawSocket {
        let made = bound()
        precondition(listen(made.number, 8) == 0)
        return made
    }

    /// A socket that is connected to a port of this machine.
    static func connected(to port: UInt16) -> RawSocket {
        let made = RawSocket(socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0))
        let code = SocketAddress.ipv4Loopback(port: port).withSockAddr { connect(made.number, $0, $1) }
        precondition(code == 0)
        return made
    }

    /// What stands for the socket elsewhere.
    var remote: SocketPort {
        let address = try? SocketAddress.local(of: FileDescriptor(rawValue: number))
        return SocketPort(remoteWithTCPPort: address?.port ?? 0, host: "127.0.0.1")!
    }

    func accept() -> RawSocket { RawSocket(Glibc.accept(number, nil, nil)) }

    func send(_ bytes: [UInt8]) { _ = Glibc.send(number, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }

    /// Waits for so many bytes, or the end.
    func receive(_ count: Int) -> [UInt8] {
        var all: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while all.count < count {
            let some = recv(number, &buffer, min(buffer.count, count - all.count), 0)
            guard some > 0 else { break }
            all += buffer.prefix(some)
        }
        return all
    }
}
