import Reactor
import ReactorTLS

// Connects with TLS, sends a request and prints the lines of the reply: `Secure example.org 443`.
let arguments = CommandLine.arguments.dropFirst()
let host = arguments.first ?? "localhost"
let port = arguments.dropFirst().first.flatMap { UInt16($0) } ?? 443

let (input, output) = Stream.connection(toHost: host, port: port)
try input.startTLS()
try await output.writeAll("HEAD / HTTP/1.0\r\nHost: \(host)\r\n\r\n", timeout: .seconds(10))
print("connected with \(input.tlsSession!.version)")
for try await line in input.lines { print(line) }
