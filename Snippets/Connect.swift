import Reactor

// Connects to a server, sends a request and prints the reply: `Connect example.org 80 'HEAD / HTTP/1.0'`.
final class Client: ConnectionDelegate {
    private let request: String

    init(request: String) { self.request = request }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted:
            print("connected to \(connection.peerAddress!)")
            try? connection.send(request + "\r\n\r\n")
        case .hasBytesAvailable:
            print(String(decoding: connection.receive(), as: UTF8.self), terminator: "")
        case .errorOccurred(let error):
            print("\(error)")
            RunLoop.current.stop()
        case .endEncountered:
            connection.close()
            RunLoop.current.stop()
        default: break
        }
    }
}

let arguments = CommandLine.arguments.dropFirst()
let connection = Connection(
    toHost: arguments.first ?? "localhost", port: arguments.dropFirst().first.flatMap { UInt16($0) } ?? 7,
    options: .init(connectTimeout: .seconds(10), idleTimeout: .seconds(30)))
connection.open(delegate: Client(request: arguments.dropFirst(2).first ?? "hello"))
RunLoop.current.run(in: .default)
