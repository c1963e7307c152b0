import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// The typed forms of the socket properties.
@Suite(.runLoop) struct SocketStreamOptionTests {
    @Test func `both halves share the options`() throws {
        let fixture = try SocketFixture(.ipv4)
        let (input, output) = (fixture.input!, fixture.output!)
        #expect(input.connectTimeout == .seconds(75) && input.idleTimeout == nil && input.writeTimeout == nil)
        #expect(
            !input.noDelay && !input.keepAlive && input.socketDescriptor == nil && input.localAddress == nil)
        input.connectTimeout = .seconds(9)
        output.idleTimeout = .seconds(10)
        input.writeTimeout = .seconds(11)
        output.noDelay = true
        input.keepAlive = true
        #expect(output.connectTimeout == .seconds(9) && input.idleTimeout == .seconds(10))
        #expect(output.writeTimeout == .seconds(11) && input.noDelay && output.keepAlive)
        #expect(input.property(forKey: .socketIdleTimeoutKey) as? Duration == .seconds(10))
        try fixture.openBoth()
        let descriptor = try #require(input.socketDescriptor)
        #expect(try input.localAddress == SocketAddress.local(of: descriptor))
        #expect(output.peerAddress == fixture.server?.address)
        output.idleTimeout = nil
        #expect(input.idleTimeout == nil)
        for stream in fixture.streams { stream.close() }
        #expect(input.socketDescriptor == nil)
    }

    @Test func `a stream that is not a socket's has no options`() {
        let input = InputStream(data: [1])
        #expect(input.connectTimeout == nil && input.idleTimeout == nil && !input.noDelay && !input.keepAlive)
        #expect(input.peerAddress == nil && input.localAddress == nil && input.socketDescriptor == nil)
    }

    @Test func `a bound pair accepts the options of a connection, without effect`() {
        let pair = Stream.boundPair(bufferSize: 4)
        for stream in [pair.input, pair.output] as [Stream] {
            stream.connectTimeout = .seconds(1)
            (stream.idleTimeout, stream.writeTimeout) = (.seconds(1), nil)
            (stream.noDelay, stream.keepAlive) = (true, true)
            stream.proxy = StreamProxy(.socks5, host: "localhost", port: 1080)
            #expect(stream.connectTimeout == nil && !stream.noDelay && stream.proxy == nil)
            stream.open()
        }
        #expect(pair.output.write([1]) == 1 && pair.input.read(upTo: 1) == [1])
    }

    @Test func `setting an option traps where it has no effect`() async {
        await #expect(processExitsWith: .failure) { InputStream(data: [1]).noDelay = true }
        await #expect(processExitsWith: .failure) {
            Stream.boundPair(bufferSize: 1).input.connectTimeout = .zero
        }
        await #expect(processExitsWith: .failure) {
            Stream.connection(to: .ipv4Loopback(port: 9)).input.idleTimeout = .zero
        }
        await #expect(processExitsWith: .failure) {
            let (input, _) = Stream.connection(to: .ipv4Loopback(port: 9))
            input.open()
            input.connectTimeout = .seconds(1)
        }
    }
}
