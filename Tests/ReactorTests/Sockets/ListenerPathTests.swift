import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// The file of a Unix-domain listener.
@Suite(.runLoop) struct ListenerPathTests {
    private let folder: TemporaryFolder
    private let path: String
    private let address: SocketAddress

    init() throws {
        folder = TemporaryFolder()
        path = folder.path("socket")
        address = try SocketAddress(unixPath: FilePath(path))
    }

    private func listen(_ options: Listener.Options = .init()) throws -> Listener {
        try Listener(address, options: options) { _, _ in }
    }

    /// Leaves a socket file without a server.
    private func leaveStaleFile() throws { try SocketPeer(family: AF_UNIX).bind(to: address) }

    @Test(arguments: [0o600, 0o777, 0o660])
    func `the socket file exists until closing, with the requested permissions`(bits: UInt32) throws {
        let listener = try listen(.init(permissions: FilePermissions(rawValue: bits)))
        #expect(folder.names == ["socket"])
        #expect(listener.localAddress == address)
        var status = stat()
        #expect(stat(path, &status) == 0 && status.st_mode & 0o7777 == bits)
        listener.close()
        #expect(folder.names == [])
    }

    @Test func `the file of a relative path is removed after the current directory has changed`() async {
        await #expect(processExitsWith: .success) {
            let folder = TemporaryFolder()
            chdir(folder.path("."))
            let listener = try Listener(SocketAddress(unixPath: "socket")) { _, _ in }
            try #require(folder.names == ["socket"])
            chdir("/")
            listener.close()
            try #require(folder.names == [])
        }
    }

    @Test func `a socket file without a server is replaced`() throws {
        try leaveStaleFile()
        #expect(folder.names == ["socket"])
        let listener = try listen()
        _ = try SocketPeer(connectedTo: address)
        #expect(folder.names == ["socket"])
        listener.close()
        #expect(folder.names == [])
    }

    @Test func `the file of a socket that is passed on stays, and the next server replaces it`() throws {
        let first = try listen()
        let second = try Listener(descriptor: #require(first.descriptor).duplicate()) { _, _ in }
        #expect(first.removesFile)
        first.removesFile = false
        first.drain()
        #expect(first.descriptor == nil && !first.removesFile)
        #expect(folder.names == ["socket"])
        _ = try SocketPeer(connectedTo: address)
        second.close()
        #expect(folder.names == ["socket"])
        try listen().close()
        #expect(folder.names == [])
    }

    @Test(arguments: [true, false])
    func `closing connections removes the file of their socket, unless it is passed on`(isPassedOn: Bool)
        throws
    {
        let connections = try RunLoop.current.connections(at: address)
        if isPassedOn { connections.removesFile = false }
        connections.close()
        #expect(folder.names == (isPassedOn ? ["socket"] : []))
    }

    @Test func `the address of a running server is in use, even if its backlog is full`() throws {
        let living = try listen(.init(backlog: 0))
        // To ask fills the backlog.
        expectErrno(.addressInUse) { try listen() }
        expectErrno(.resourceTemporarilyUnavailable) {
            try SocketPeer(connectedTo: address, isBlocking: false)
        }
        expectErrno(.addressInUse) { try listen() }
        #expect(folder.names == ["socket"])
        living.close()
    }

    @Test(arguments: ["file", "link", "folder", "datagram socket"])
    func `a file that is not a stream socket stays, and its address is in use`(kind: String) throws {
        let datagrams = try SocketPeer(family: AF_UNIX, SOCK_DGRAM)
        switch kind {
        case "file": close(open(path, O_CREAT | O_WRONLY, 0o600))
        case "folder": mkdir(path, 0o700)
        case "datagram socket": try datagrams.bind(to: address)
        default:
            // A link to a socket without a server: the link is not the listener's to remove.
            try leaveStaleFile()
            rename(path, folder.path("other"))
            symlink("other", path)
        }
        defer { if kind == "folder" { rmdir(path) } }
        expectErrno(.addressInUse) { try listen() }
        #expect(folder.names.contains("socket"))
    }

    @Test func `a missing folder and another machine's address are errors`() throws {
        let missing = try SocketAddress(unixPath: FilePath(folder.path("missing/socket")))
        expectErrno(.noSuchFileOrDirectory) { try Listener(missing) { _, _ in } }
        expectErrno(.addressNotAvailable) { try Listener(.ipv4(0xc000_0201, port: 0)) { _, _ in } }
    }

    @Test func `of many listeners that start at an abandoned path, one succeeds`() throws {
        for _ in 0..<20 {
            try leaveStaleFile()
            let (outcomes, tried) = (Shared<[Errno?]>([]), Countdown(4))
            onThreads(4) { _ in
                var listener: Listener?
                do {
                    listener = try listen()
                    outcomes.update { $0.append(nil) }
                } catch {
                    outcomes.update { $0.append((error as? IOError)?.errno ?? .notSupported) }
                }
                tried.count()
                tried.wait()
                if listener != nil { #expect((try? SocketPeer(connectedTo: address)) != nil) }
                listener?.close()
            }
            #expect(outcomes.value.count { $0 == nil } == 1)
            #expect(outcomes.value.count { $0 == .addressInUse } == 3)
            #expect(folder.names == [])
        }
    }

    @Test func `a locked folder delays listening for a bounded time`() throws {
        let number = open(folder.path.string, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        defer { close(number) }
        #expect(flock(number, LOCK_EX) == 0)
        let listener = try listen()
        _ = try SocketPeer(connectedTo: address)
        listener.close()
    }
}
