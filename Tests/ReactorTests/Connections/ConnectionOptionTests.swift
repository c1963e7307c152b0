import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What the kernel keeps of a connection's options.
@Suite(.runLoop) struct ConnectionOptionTests {
    private static let tcp = CInt(IPPROTO_TCP)
    private static let options = Connection.Options(
        keepAlive: .init(idle: .milliseconds(60_001), interval: .seconds(7), count: 3),
        userTimeout: .microseconds(12_345_001), sendBufferSize: 20_000, receiveBufferSize: 30_000,
        unsentLowWaterMark: 4096)
    /// Linux doubles the sizes of buffers.
    private static let expected: [(level: CInt, name: CInt, value: CInt)] = [
        (tcp, TCP_NODELAY, 1), (SOL_SOCKET, SO_KEEPALIVE, 1), (tcp, TCP_KEEPIDLE, 61),
        (tcp, TCP_KEEPINTVL, 7),
        (tcp, TCP_KEEPCNT, 3), (tcp, TCP_USER_TIMEOUT, 12_346), (SOL_SOCKET, SO_SNDBUF, 40_000),
        (SOL_SOCKET, SO_RCVBUF, 60_000), (tcp, TCP_NOTSENT_LOWAT, 4096),
    ]
    private let home = LoopThread()

    private func expectOptions(of connection: Connection) throws {
        let descriptor = try #require(connection.descriptor)
        for (level, name, value) in Self.expected {
            #expect(descriptor.socketOption(level, name) == value, "option \(name) of level \(level)")
        }
    }

    @Test func `the kernel has the options of a connection, of accepted ones, and of a descriptor's`()
        async throws
    {
        let listener = Listener.Options(connection: Self.options)
        let connections = try home.loop.connections(at: .ownLoopback, options: listener)
        let client = try await Connection.connect(to: connections.localAddress, options: Self.options)
        let server = try await connections.accept()
        defer {
            client.close()
            server.close()
        }
        try expectOptions(of: client)
        try expectOptions(of: server)
        let socket = FileDescriptor(rawValue: Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0))
        let connection = Connection(descriptor: socket, options: Self.options)
        defer { connection.close() }
        try expectOptions(of: connection)
    }

    @Test func `an accepted connection of a Unix-domain socket has them, too`() async throws {
        let folder = TemporaryFolder()
        let address = try SocketAddress(unixPath: FilePath(folder.path("socket")))
        let connections = try home.loop.connections(at: address, options: .init(connection: Self.options))
        let client = try await Connection.connect(to: address)
        let server = try await connections.accept()
        let descriptor = try #require(server.descriptor)
        #expect(descriptor.socketOption(SOL_SOCKET, SO_SNDBUF) == 40_000)
        #expect(descriptor.socketOption(SOL_SOCKET, SO_RCVBUF) == 60_000)
        client.close()
        server.close()
    }

    @Test func `without options the kernel decides, but sends small writes at once`() async throws {
        let connections = try home.loop.connections(at: .ownLoopback)
        let client = try await Connection.connect(to: connections.localAddress)
        let server = try await connections.accept()
        defer {
            client.close()
            server.close()
        }
        for descriptor in [client.descriptor, server.descriptor] {
            let descriptor = try #require(descriptor)
            #expect(descriptor.socketOption(Self.tcp, TCP_NODELAY) == 1)
            #expect(descriptor.socketOption(SOL_SOCKET, SO_KEEPALIVE) == 0)
            #expect(descriptor.socketOption(Self.tcp, TCP_USER_TIMEOUT) == 0)
        }
        var options = Connection.Options(keepAlive: .init())
        options.noDelay = false
        let slow = try await Connection.connect(to: connections.localAddress, options: options)
        defer { slow.close() }
        let descriptor = try #require(slow.descriptor)
        #expect(descriptor.socketOption(Self.tcp, TCP_NODELAY) == 0)
        #expect(descriptor.socketOption(SOL_SOCKET, SO_KEEPALIVE) == 1)
    }

    @Test func `times and counts beyond the kernel's are its largest`() async throws {
        var options = Connection.Options(
            keepAlive: .init(idle: .seconds(1_000_000), interval: .seconds(Int64.max), count: .max))
        options.userTimeout = .seconds(Int64.max)
        let connections = try home.loop.connections(at: .ownLoopback)
        let client = try await Connection.connect(to: connections.localAddress, options: options)
        defer { client.close() }
        let descriptor = try #require(client.descriptor)
        let values = [TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT].map {
            descriptor.socketOption(Self.tcp, $0)
        }
        #expect(values == [32_767, 32_767, 127, .max])
    }

    @Test func `a peer that does not read leaves little in the kernel`() async throws {
        let options = Connection.Options(sendBufferSize: 16_384, receiveBufferSize: 16_384)
        let connections = try home.loop.connections(
            at: .ownLoopback, options: Listener.Options(connection: options))
        let client = try await Connection.connect(to: connections.localAddress, options: options)
        let server = try await connections.accept()
        defer {
            client.reset()
            server.reset()
        }
        let descriptor = try #require(client.descriptor)
        var sent = 0
        while true {
            let count = [UInt8](repeating: 1, count: 4096).withUnsafeBytes { bytes in
                unsafe Glibc.send(
                    descriptor.rawValue, bytes.baseAddress!, bytes.count, CInt(MSG_DONTWAIT))
            }
            guard count > 0 else { break }
            sent += count
        }
        #expect(sent <= 200_000)
    }

    @Test(arguments: [Int?.some(0), -1]) func `a size of the kernel's that is not positive traps`(size: Int?)
        async
    {
        await #expect(processExitsWith: .failure) { [size] in
            var options = Connection.Options()
            options.sendBufferSize = size
        }
        await #expect(processExitsWith: .failure) { [size] in _ = Connection.KeepAlive(count: size) }
    }
}
