import Reactor
import ReactorTLS

// Connects with TLS, sends a request and prints the lines of the reply: `Secure example.org 443`.
let arguments = CommandLine.arguments.dropFirst()
let host = arguments.first ?? "localhost"
let port = arguments.dropFirst().first.flatMap { UInt16($0) } ?? 443

let connection = try await Connection.connect(
    toHost: host, port: port, options: .init(connectTimeout: .seconds(10)), security: .tls())
print("connected with \(connection.tlsSession!.version)")
try await connection.write("HEAD / HTTP/1.0\r\nHost: \(host)\r\n\r\n")
for try await line in connection.lines() { print(line) }
