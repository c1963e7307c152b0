import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Errors name what has failed and on what.
@Suite(.runLoop) struct IOErrorTests {
    private func error(_ body: () throws -> Void) -> IOError? {
        do { try body() } catch { return error as? IOError }
        return nil
    }

    @Test func `a stream names the file that it cannot open`() {
        let path = TemporaryFolder().path("missing")
        for stream in [InputStream(path: FilePath(path)), InputStream(fileAtPath: path)!] {
            stream.open()
            #expect(stream.streamError as? IOError == IOError(.open, path, .noSuchFileOrDirectory))
            stream.close()
            #expect("\(stream.streamError!)" == "open \(path): No such file or directory")
        }
    }

    @Test func `a stream's label and the standard descriptors are named`() throws {
        let (input, output) = Stream.connection(to: try refusingAddress())
        input.label = "feed"
        for stream in [input, output] { stream.open() }
        #expect(input.read(upTo: 1).isEmpty && output.write([1]) == 0)
        let error = try #require(input.streamError as? IOError)
        #expect("\(error)" == "connect to \(error.subject) 'feed': Connection refused")
        #expect(error.label == "feed" && (output.streamError as? IOError)?.label == nil)
        #expect(InputStream(descriptor: .standardInput).explain().contains("stream of standard input is"))
        #expect(OutputStream(descriptor: .standardError).explain().contains("stream of standard error is"))
    }

    @Test func `a stream names the file that it cannot write`() {
        let output = OutputStream(path: "/dev/full")
        output.open()
        #expect(output.write([1]) == 0)
        output.close()
        #expect(output.streamError as? IOError == IOError(.write, "/dev/full", .noSpace))
    }

    @Test func `a stream names the descriptor that it cannot open`() throws {
        let descriptor = try FileDescriptor.open(".", .readOnly, options: .directory)
        let input = InputStream(descriptor: descriptor, closeWhenDone: true)
        input.open()
        let number = descriptor.rawValue
        #expect(input.streamError as? IOError == IOError(.open, "descriptor \(number)", .isDirectory))
        input.close()
    }

    @Test(arguments: ["localhost", "127.0.0.1", "::1"])
    func `a connection names the host that it cannot connect to`(host: String) throws {
        let address = try refusingAddress(host == "::1" ? .ipv6 : .ipv4)
        let port = try #require(address.port)
        let (input, output) = Stream.connection(toHost: host, port: port)
        for stream in [input, output] { stream.open() }
        #expect(input.read(upTo: 1).isEmpty && output.write([1]) == 0)
        let subject = host == "::1" ? "[::1]:\(port)" : "\(host):\(port)"
        for stream in [input, output] {
            #expect(stream.streamError as? IOError == IOError(.connect, subject, .connectionRefused))
            #expect("\(stream.streamError!)" == "connect to \(subject): Connection refused")
        }
    }

    @Test func `a connection names the host that it cannot resolve`() throws {
        let (input, _) = Stream.connection(toHost: "", port: 1)
        input.open()
        #expect(input.read(upTo: 1).isEmpty)
        #expect(try #require(input.streamError as? ResolverError).code == .unknownName)
        let service = ResolverError.Code.unknownService
        let answer = resolved { Resolver.resolve(host: "localhost", service: "none such", completion: $0) }
        guard case .failure(let error) = answer else { throw Errno.invalidArgument }
        #expect(error.subject == "localhost, service none such" && error.code == service)
        #expect("\(error)" == "resolve localhost, service none such: \(service)")
    }

    @Test func `an accepted connection names its peer`() throws {
        var accepted: Listener.Connection?
        let listener = try addListener { listener, connection in
            accepted = connection
            listener.close()
        }
        let peer = try SocketPeer(connectedTo: listener.localAddress)
        let address = try peer.localAddress
        while accepted == nil { RunLoop.current.run(mode: .default, before: .minutesAway) }
        let input = try #require(accepted).input
        input.open()
        peer.reset()
        #expect(input.read(upTo: 1).isEmpty)
        #expect(input.streamError as? IOError == IOError(.read, "\(address)", .connectionReset))
        #expect(input.peerAddress == address)
    }

    @Test func `a listener names the address that it cannot listen at`() throws {
        let server = try SocketServer()
        let failure = error {
            _ = try Listener(server.address, handler: { _, _ in }, faults: { Issue.record($1) })
        }
        #expect(failure == IOError(.listen, "\(server.address)", .addressInUse))
        #expect(failure?.description == "listen at \(server.address): Address already in use")
    }

    @Test func `a datagram socket names the address that it cannot be bound or connected to`() throws {
        let (path, missing) = (DatagramKind.path.freshAddress(), DatagramKind.path.freshAddress())
        let socket = try DatagramSocket(boundTo: path) { _, _, _ in }
        let binding = error {
            _ = try DatagramSocket(
                boundTo: path, receive: { _, _, _ in }, events: DatagramSocket.failOnEvent)
        }
        #expect(binding == IOError(.bind, "\(path)", .addressInUse))
        let connecting = error {
            _ = try DatagramSocket(
                connectedTo: missing, receive: { _, _, _ in }, events: DatagramSocket.failOnEvent)
        }
        #expect(connecting == IOError(.connect, "\(missing)", .noSuchFileOrDirectory))
        socket.close()
    }

    @Test func `writing before opening traps, except with Cocoa's method`() async {
        let output = OutputStream(toMemory: ())
        #expect(output.write([1], maxLength: 1) == -1 && output.streamStatus == .notOpen)
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            OutputStream(toMemory: ()).write("text")
        }
        #expect(result.message.contains("before open()"))
    }
}
