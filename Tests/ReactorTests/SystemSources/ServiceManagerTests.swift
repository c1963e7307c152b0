import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// A service manager's end of the notifications of this process.
private final class Manager: Sendable {
    private let socket = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)

    init(at address: SocketAddress) {
        precondition(address.withSockAddr { bind(socket, $0, $1) } == 0)
        let name = address.unixAbstractName.map { "@" + String(decoding: $0, as: UTF8.self) }
        setenv("NOTIFY_SOCKET", name ?? address.unixPath!.string, 1)
    }

    deinit { close(socket) }

    /// Waits for the next notification.
    func next() -> String {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = recv(socket, &bytes, bytes.count, 0)
        return String(decoding: bytes.prefix(max(count, 0)), as: UTF8.self)
    }

    /// How many notifications wait.
    func takeCount() -> Int {
        var byte: UInt8 = 0
        var count = 0
        while recv(socket, &byte, 1, CInt(MSG_DONTWAIT)) >= 0 { count += 1 }
        return count
    }
}

@Suite(.runLoop) struct ServiceManagerTests {
    private static let probe = Child.folder + "/main-loop-probe"
    private static let scenario = "sockets of a manager"

    /// A listening socket, which is not closed on exec.
    private func listeningSocket(at path: String) throws -> FileDescriptor {
        let number = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        let address = try SocketAddress(unixPath: FilePath(path))
        #expect(address.withSockAddr { bind(number, $0, $1) } == 0 && listen(number, 5) == 0)
        return FileDescriptor(rawValue: number)
    }

    // MARK: Sockets

    @Test func `a child takes the sockets that it is passed, once, by their names`() throws {
        let folder = TemporaryFolder()
        let socket = try listeningSocket(at: folder.path("socket"))
        defer { try? socket.close() }
        var configuration = ChildProcess.Configuration(
            Self.probe, [Self.scenario], standardOutput: .stream)
        configuration.sockets = [.init(socket, name: "echo"), .init(.standardError)]
        let child = try ChildProcess.spawn(configuration)
        let client = try SocketPeer(connectedTo: SocketAddress(unixPath: FilePath(folder.path("socket"))))
        #expect(child.standardOutput!.readAll() == "echo 3 true\nunknown 4 true\nagain 0\naccepted\n")
        #expect(child.process.wait()?.isSuccess == true)
        withExtendedLifetime(client) {}
    }

    @Test func `the variables name the child, in place of those of this process`() throws {
        let output = try ChildProcess.output(of: "echo $$ $LISTEN_PID $LISTEN_FDS $LISTEN_FDNAMES $OWN") {
            $0.environment = .updated(["LISTEN_PID": "1", "LISTEN_FDS": "9", "OWN": "mine"])
            $0.sockets = [.init(.standardError, name: "a"), .init(.standardError, name: "b")]
        }
        let words = output.dropLast().split(separator: " ").map(String.init)
        #expect(words.count == 5 && words[0] == words[1] && words[2...] == ["2", "a:b", "mine"])
    }

    @Test func `sockets whose names or numbers cannot be passed are refused`() {
        for name in ["a:b", "a\nb", "a\0"] {
            var configuration = ChildProcess.Configuration("true")
            configuration.sockets = [.init(.standardError, name: name)]
            let error = #expect(throws: IOError.self) { try ChildProcess.spawn(configuration) }
            #expect(error?.errno == .invalidArgument)
        }
        var configuration = ChildProcess.Configuration("true")
        (configuration.sockets, configuration.descriptors) = ([.init(.standardError)], [3: .standardError])
        let error = #expect(throws: IOError.self) { try ChildProcess.spawn(configuration) }
        #expect(error?.errno == .invalidArgument)
    }

    @Test(.enabled(if: access("/usr/bin/systemd-socket-activate", X_OK) == 0))
    func `systemd passes a socket`() throws {
        let folder = TemporaryFolder()
        let path = folder.path("socket")
        let child = try ChildProcess.spawn(
            .init(
                "/usr/bin/systemd-socket-activate",
                ["--listen=\(path)", "--fdname=web", Self.probe, Self.scenario],
                standardOutput: .stream, standardError: .null))
        // The path is there before the socket listens.
        let address = try SocketAddress(unixPath: FilePath(path))
        var client: SocketPeer?
        waitUntil {
            client = try? SocketPeer(connectedTo: address)
            return client != nil
        }
        #expect(child.standardOutput!.readAll() == "web 3 true\nagain 0\naccepted\n")
        #expect(child.process.wait()?.isSuccess == true)
        withExtendedLifetime(client) {}
    }

    @Test func `variables for another process, or that are no manager's, pass nothing`() async {
        await #expect(processExitsWith: .success) {
            let none = try ServiceManager.takeSockets()
            #expect(none.isEmpty)
            setenv("LISTEN_PID", "1", 1)
            setenv("LISTEN_FDS", "1", 1)
            let sockets = try ServiceManager.takeSockets()
            #expect(sockets.isEmpty)
            setenv("LISTEN_PID", "\(getpid())", 1)
            for count in ["one", "-1", "2147483647"] {
                setenv("LISTEN_FDS", count, 1)
                expectErrno(.invalidArgument) { try ServiceManager.takeSockets() }
            }
            setenv("LISTEN_FDS", "100000", 1)
            expectErrno(.badFileDescriptor) { try ServiceManager.takeSockets() }
            setenv("LISTEN_FDS", "1", 1)
            setenv("LISTEN_FDNAMES", "a:b", 1)
            expectErrno(.invalidArgument) { try ServiceManager.takeSockets() }
        }
    }

    // MARK: Notifications

    @Test func `notifications reach the manager, at a path or an abstract name`() async {
        await #expect(processExitsWith: .success) {
            try ServiceManager.notify(.ready)  // without a manager
            let folder = TemporaryFolder()
            let addresses = [
                try SocketAddress(unixPath: FilePath(folder.path("notify"))),
                try SocketAddress(unixAbstractName: Array("reactor-\(getpid())".utf8)),
            ]
            for address in addresses {
                let manager = Manager(at: address)
                try ServiceManager.notify(.ready, .status("one\ntwo"))
                #expect(manager.next() == "READY=1\nSTATUS=one two")
                try ServiceManager.notify()  // of nothing
                try ServiceManager.notify(.reloading)
                #expect(manager.next().hasPrefix("RELOADING=1\nMONOTONIC_USEC="))
                try ServiceManager.notify(.init(rawValue: "X_OWN=1"))
                #expect(manager.next() == "X_OWN=1")
            }
        }
    }

    @Test func `a manager that is not there, or does not read, is an error that names its address`() async {
        await #expect(processExitsWith: .success) {
            let name = "reactor-\(getpid())"
            for (address, expected) in [("@\(name)", Errno.connectionRefused), ("name", .invalidArgument)] {
                setenv("NOTIFY_SOCKET", address, 1)
                let error = #expect(throws: IOError.self) { try ServiceManager.notify(.ready) }
                #expect(error?.errno == expected && error?.subject == address)
            }
            let manager = Manager(at: try SocketAddress(unixAbstractName: Array(name.utf8)))
            let error = #expect(throws: IOError.self) {
                for _ in 0..<100_000 { try ServiceManager.notify(.ready) }
            }
            #expect(error?.errno == .resourceTemporarilyUnavailable)
            _ = manager.next()
        }
    }

    @Test func `a watchdog's time that is none is ignored`() async {
        await #expect(processExitsWith: .success) {
            #expect(ServiceManager.watchdogTimer() == nil)
            for text in ["0", "-1", "1s", ""] {
                setenv("WATCHDOG_USEC", text, 1)
                #expect(ServiceManager.watchdogTimeout == nil && ServiceManager.watchdogTimer() == nil)
            }
        }
    }

    @Test func `the watchdog hears of a loop that runs`() async {
        await #expect(processExitsWith: .success) {
            let manager = Manager(at: try SocketAddress(unixAbstractName: Array("reactor-\(getpid())".utf8)))
            setenv("WATCHDOG_USEC", "10000000", 1)
            setenv("WATCHDOG_PID", "1", 1)
            #expect(ServiceManager.watchdogTimer() == nil)
            setenv("WATCHDOG_PID", "\(getpid())", 1)
            #expect(ServiceManager.watchdogTimeout == .seconds(10))
            try onAThread {
                withVirtualTime { time in
                    let timer = ServiceManager.watchdogTimer()!
                    RunLoop.current.add(timer, forMode: .common)
                    time.advance(by: .seconds(29))
                    #expect(manager.takeCount() == 5)
                    timer.invalidate()
                }
            }
        }
    }

    @Test func `a signal that begins a graceful shutdown tells the manager`() async {
        await #expect(processExitsWith: .success) {
            let manager = Manager(at: try SocketAddress(unixAbstractName: Array("reactor-\(getpid())".utf8)))
            let thread = try RunLoopThread(name: "shutdown")
            try await thread.runLoop.withGracefulShutdown(on: [.userDefinedOne]) { shutdown in
                kill(getpid(), SIGUSR1)
                try await shutdown.waitUntilBegun()
            }
            #expect(manager.next() == "STOPPING=1")
            await thread.shutDown()
        }
    }
}
