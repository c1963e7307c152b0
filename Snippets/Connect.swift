import Reactor

// Connects to a server, sends a request and prints the reply: `Connect example.org 80 'HEAD / HTTP/1.0'`.
final class Client: StreamDelegate {
    private let input: InputStream
    private let output: OutputStream
    private let request: String

    init(host: String, port: UInt16, request: String) {
        (input, output) = Stream.connection(toHost: host, port: port)
        self.request = request
        input.connectTimeout = .seconds(10)
        input.idleTimeout = .seconds(30)
        for stream in [input, output] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .default)
            stream.open()
        }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .openCompleted where stream === output:
            print("connected to \(stream.peerAddress!)")
            output.write(request + "\r\n\r\n")
        case .hasBytesAvailable:
            print(String(decoding: input.read(upTo: 4096), as: UTF8.self), terminator: "")
        case .errorOccurred:
            print("\(stream.streamError!)")
            close()
        case .endEncountered: close()
        default: break
        }
    }

    private func close() {
        for stream in [input, output] { stream.close() }
        RunLoop.current.stop()
    }
}

let arguments = CommandLine.arguments.dropFirst()
let client = Client(
    host: arguments.first ?? "localhost", port: arguments.dropFirst().first.flatMap { UInt16($0) } ?? 7,
    request: arguments.dropFirst(2).first ?? "hello")
RunLoop.current.run(in: .default)
