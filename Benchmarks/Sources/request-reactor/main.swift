// request-reactor COUNT  Sends COUNT requests, one after another on one connection, and collects the bodies of 1000 bytes in
//                        memory. The server is a thread of this process that only reads and writes.

import Glibc
import Reactor
import ReactorHTTP

guard let count = CommandLine.arguments.dropFirst().first.flatMap({ Int($0) }) else {
    fatalError("usage: request-reactor COUNT")
}

/// Answers each request of the first connection.
@Sendable func serve(_ listener: CInt) {
    let connection = accept(listener, nil, nil)
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    let response = Array(head.utf8) + [UInt8](repeating: 97, count: 1000)
    var buffer = [UInt8](repeating: 0, count: 4096)
    // The whole request arrives in one segment.
    while read(connection, &buffer, buffer.count) > 0 {
        guard write(connection, response, response.count) == response.count else { return }
    }
}

let listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
var (address, size) = (sockaddr_in(), socklen_t(MemoryLayout<sockaddr_in>.size))
address.sin_family = sa_family_t(AF_INET)
address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
withUnsafeMutablePointer(to: &address) {
    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        guard bind(listener, $0, size) == 0, listen(listener, 1) == 0,
            getsockname(listener, $0, &size) == 0
        else { fatalError("there is no free port") }
    }
}
let server = try RunLoopThread(name: "server")
server.runLoop.perform { [listener] in serve(listener) }

let session = HTTPSession(on: .current)
let request = HTTPRequest("http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))/")

@Sendable func send(_ rest: Int) {
    session.start(request) { result in
        guard case .success(let response) = result, response.body.count == 1000 else {
            fatalError("\(result)")
        }
        if rest > 1 { send(rest - 1) } else { RunLoop.current.stop() }
    }
}

send(count)
RunLoop.current.run(in: .default)
exit(0)  // the server still reads
