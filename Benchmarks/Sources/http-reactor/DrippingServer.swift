import Glibc

/// Sends a body of `count` bytes, one at a time: each after the client, in this process, has received the one before.
final class DrippingServer: Sendable {
    let url: String
    private let listener: CInt
    private let count: Int

    init(_ count: Int) {
        self.count = count
        let listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        var (address, size) = (sockaddr_in(), socklen_t(MemoryLayout<sockaddr_in>.size))
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                guard bind(listener, $0, size) == 0, listen(listener, 1) == 0,
                    getsockname(listener, $0, &size) == 0
                else {
                    fatalError("there is no free port")
                }
            }
        }
        self.listener = listener
        url = "http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))/"
    }

    /// Serves one request, and returns when the client has received all bytes.
    func serve() {
        let connection = accept(listener, nil, nil)
        var request = [UInt8](repeating: 0, count: 4096)
        guard recv(connection, &request, request.count, 0) > 0 else { fatalError("there is no request") }
        var one: CInt = 1
        setsockopt(connection, CInt(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<CInt>.size))
        let head = Array("HTTP/1.1 200 OK\r\nContent-Length: \(count)\r\n\r\n".utf8)
        guard send(connection, head, head.count, 0) == head.count else { fatalError("the client has gone") }
        let client = descriptor(ofPeerOf: connection)
        for _ in 0..<count {
            waitUntilReceived(client)
            guard send(connection, "x", 1, 0) == 1 else { fatalError("the client has gone") }
        }
        waitUntilReceived(client)
        close(connection)
    }

    private func waitUntilReceived(_ client: CInt) {
        var waiting: CInt = 1
        while ioctl(client, UInt(FIONREAD), &waiting) == 0, waiting > 0 { sched_yield() }
    }

    /// The client's end of a connection, which is in this process.
    private func descriptor(ofPeerOf connection: CInt) -> CInt {
        let peer = port(of: connection, getpeername)
        guard let client = (3..<1024).first(where: { port(of: $0, getsockname) == peer }) else {
            fatalError("the client is not in this process")
        }
        return client
    }

    private func port(
        of descriptor: CInt,
        _ name: (CInt, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> CInt
    ) -> in_port_t? {
        var (address, size) = (sockaddr_in(), socklen_t(MemoryLayout<sockaddr_in>.size))
        return withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { name(descriptor, $0, &size) } == 0
        } ? address.sin_port : nil
    }
}
