import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Errors name what has failed and on what.
@Suite(.runLoop) struct IOErrorTests {
    @Test func `a stream names the file or the descriptor that it cannot open or write`() throws {
        let path = TemporaryFolder().path("missing")
        let folder = try FileDescriptor.open(".", .readOnly, options: .directory)
        let inputs: [(InputStream, IOError)] = [
            (InputStream(path: FilePath(path)), IOError(.open, path, .noSuchFileOrDirectory)),
            (InputStream(fileAtPath: path)!, IOError(.open, path, .noSuchFileOrDirectory)),
            (
                InputStream(descriptor: folder, closeWhenDone: true),
                IOError(.open, "descriptor \(folder.rawValue)", .isDirectory)
            ),
        ]
        for (input, error) in inputs {
            input.open()
            #expect(input.streamError as? IOError == error)
            input.close()
        }
        #expect("\(inputs[0].1)" == "open \(path): No such file or directory")
        let output = OutputStream(path: "/dev/full")
        output.open()
        #expect(output.write([1]) == 0)
        output.close()
        #expect(output.streamError as? IOError == IOError(.write, "/dev/full", .noSpace))
    }

    @Test func `a stream's label and the standard descriptors are named`() throws {
        let (input, output) = Connection(to: refusingAddress()).streams
        input.label = "feed"
        for stream in [input, output] { stream.open() }
        #expect(input.read(upTo: 1).isEmpty && output.write([1]) == 0)
        let error = try #require(input.streamError as? IOError)
        #expect("\(error)".contains("'feed'"))
        #expect(error.label == "feed" && (output.streamError as? IOError)?.label == nil)
        #expect(InputStream(descriptor: .standardInput).explain().contains("standard input"))
        #expect(OutputStream(descriptor: .standardError).explain().contains("standard error"))
    }

    @Test(arguments: ["localhost", "127.0.0.1", "::1"])
    func `a connection names the host that it cannot connect to`(host: String) throws {
        let address = refusingAddress(host == "::1" ? .ipv6 : .ipv4)
        let port = try #require(address.port)
        let (input, output) = Connection(toHost: host, port: port).streams
        for stream in [input, output] { stream.open() }
        #expect(input.read(upTo: 1).isEmpty && output.write([1]) == 0)
        let subject = host == "::1" ? "[::1]:\(port)" : "\(host):\(port)"
        for stream in [input, output] {
            #expect(stream.streamError as? IOError == IOError(.connect, subject, .connectionRefused))
        }
    }

    @Test func `a lookup names the host and the service that it cannot resolve`() throws {
        let answer = resolved { Resolver.resolve(host: "localhost", service: "none such", completion: $0) }
        guard case .failure(let error) = answer else { throw Errno.invalidArgument }
        #expect(error.subject.contains("localhost") && error.subject.contains("none such"))
        #expect(error.reason == .resolver(EAI_SERVICE) && "\(error)".contains(error.subject))
    }

    @Test func `listeners and datagram sockets name the address that they cannot use`() throws {
        let (used, missing) = (DatagramKind.path.freshAddress(), DatagramKind.path.freshAddress())
        let (server, socket) = (try SocketServer(), try silentSocket(at: used))
        #expect(throws: IOError(.listen, "\(server.address)", .addressInUse)) {
            try Listener(server.address, handler: { _, _ in }, acceptErrors: { Issue.record($1) })
        }
        #expect(throws: IOError(.bind, "\(used)", .addressInUse)) {
            try DatagramSocket(boundTo: used, receive: { _, _, _ in }, events: DatagramSocket.failOnEvent)
        }
        #expect(throws: IOError(.connect, "\(missing)", .noSuchFileOrDirectory)) {
            try DatagramSocket(
                connectedTo: missing, receive: { _, _, _ in }, events: DatagramSocket.failOnEvent)
        }
        socket.close()
    }

    @Test func `writing before opening traps, except with Cocoa's method`() async {
        let output = OutputStream(toMemory: ())
        #expect(output.write([1], maxLength: 1) == -1 && output.streamStatus == .notOpen)
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = synchronously { OutputStream(toMemory: ()).write("text") }
        }
        #expect(result.message.contains("open()"))
    }
}
