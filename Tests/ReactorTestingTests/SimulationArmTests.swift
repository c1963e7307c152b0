import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// What a program has seen, and the end of its run.
private final class Log {
    private(set) var lines: [String] = []
    /// How many parts of the program have yet to end.
    private var openCount: Int

    init(parts: Int) { openCount = parts }

    func note(_ line: String) { lines.append(line) }

    func end() {
        openCount -= 1
        if openCount == 0 { RunLoop.current.stop() }
    }
}

private func code(of error: any Error) -> CInt { (error as? IOError)?.errno?.rawValue ?? -1 }

/// Notes the events of a connection, with its bytes as one.
private final class Party: ConnectionDelegate {
    private let name: String
    private let log: Log
    private let opened: (Connection) -> Void
    private let ended: (Connection) -> Void
    private var count = 0

    init(
        _ name: String, _ log: Log, opened: @escaping (Connection) -> Void = { _ in },
        ended: @escaping (Connection) -> Void = { $0.close() }
    ) {
        (self.name, self.log, self.opened, self.ended) = (name, log, opened, ended)
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted: opened(connection)
        case .hasBytesAvailable: count += connection.receive().count
        case .endEncountered:
            log.note("\(name) has received \(count) bytes and the end")
            ended(connection)
            log.end()
        case .errorOccurred(let error):
            log.note("\(name) has received \(count) bytes and fails: \(code(of: error))")
            log.end()
        default: break
        }
    }
}

/// Programs that do the same in a simulation as over the kernel's loopback interface.
@Suite(.runLoop) struct SimulationArmTests {
    /// Runs a program, whose client's and server's lines are compared apart: their order among each other may differ.
    private func compare(parts: Int, _ program: (Log) throws -> Any) throws -> [String] {
        let real = try run(Log(parts: parts), program)
        let simulated = try withSimulation { _ in try run(Log(parts: parts), program) }
        #expect(real == simulated)
        return simulated
    }

    private func run(_ log: Log, _ program: (Log) throws -> Any) throws -> [String] {
        let retained = try program(log)
        RunLoop.current.run(in: .default)
        withExtendedLifetime(retained) {}
        return log.lines.sorted()
    }

    private func listener(_ log: Log, _ handler: @escaping (Connection) -> Void) throws -> (Listener, UInt16)
    {
        let listener = try Listener(.ipv4Loopback(port: 0)) { listener, connection in
            listener.close()
            handler(connection)
        } acceptErrors: { _, error in
            log.note("\(error)")
        }
        try RunLoop.current.add(listener, forMode: .common)
        return (listener, listener.localAddress.port!)
    }

    @Test func `both directions end in order`() throws {
        let lines = try compare(parts: 2) { log in
            let (listener, port) = try listener(log) { connection in
                connection.open(
                    delegate: Party("server", log) {
                        try? $0.send("welcome")
                    } ended: {
                        try? $0.sendEnd()
                    })
            }
            let client = Connection(toHost: "localhost", port: port)
            client.open(
                delegate: Party("client", log) {
                    try? $0.send([UInt8](repeating: 7, count: 50_000))
                    try? $0.sendEnd()
                })
            return (listener, client)
        }
        #expect(
            lines == [
                "client has received 7 bytes and the end", "server has received 50000 bytes and the end",
            ])
    }

    @Test func `what is sent before a close arrives`() throws {
        let lines = try compare(parts: 1) { log in
            let (listener, port) = try listener(log) { connection in
                connection.open(delegate: Party("server", log))
            }
            let client = Connection(to: .ipv4Loopback(port: port))
            client.open(
                delegate: Party("client", log) {
                    try? $0.send([UInt8](repeating: 7, count: 60_000))
                    $0.close()
                })
            return listener
        }
        #expect(lines == ["server has received 60000 bytes and the end"])
    }

    @Test func `a reset is a failure of the peer`() throws {
        let lines = try compare(parts: 1) { log in
            let (listener, port) = try listener(log) { connection in
                connection.open(delegate: Party("server", log) { $0.reset() })
            }
            let client = Connection(to: .ipv4Loopback(port: port))
            client.open(delegate: Party("client", log))
            return (listener, client)
        }
        #expect(lines.contains("client has received 0 bytes and fails: \(Errno.connectionReset.rawValue)"))
    }

    @Test func `a port without a listener refuses`() throws {
        let lines = try compare(parts: 1) { log in
            let (listener, port) = try listener(log) { _ in }
            listener.close()
            let client = Connection(toHost: "localhost", port: port)
            client.open(delegate: Party("client", log))
            return client
        }
        #expect(lines == ["client has received 0 bytes and fails: \(Errno.connectionRefused.rawValue)"])
    }

    @Test func `an address is in use until its listener is closed`() throws {
        let lines = try compare(parts: 1) { log in
            let (first, port) = try listener(log) { _ in }
            for host in [0x7f00_0001, 0x7f00_0002, 0] as [UInt32] {
                do throws(IOError) {
                    try Listener(.ipv4(host, port: port), handler: { _, _ in }, acceptErrors: { _, _ in })
                        .close()
                    log.note("\(host) is free")
                } catch {
                    log.note("\(host): \(code(of: error))")
                }
            }
            first.close()
            try Listener(.ipv4Any(port: port), handler: { _, _ in }, acceptErrors: { _, _ in }).close()
            Timer.scheduled(after: .zero) { _ in log.end() }
            return first
        }
        #expect(lines.count == 3 && lines.filter { $0.hasSuffix("free") } == ["2130706434 is free"])
    }

    @Test func `a timeout of a silent peer`() throws {
        let lines = try compare(parts: 1) { log in
            let (listener, port) = try listener(log) { connection in
                connection.idleTimeout = .milliseconds(20)
                connection.open(delegate: Party("server", log))
            }
            let client = Connection(to: .ipv4Loopback(port: port))
            client.open(
                delegate: Party("client", log) {
                    try? $0.send("x")
                } ended: { _ in
                })
            return (listener, client)
        }
        #expect(lines.contains("server has received 1 bytes and fails: \(Errno.timedOut.rawValue)"))
    }

    @Test func `datagrams come from the sender's address, up to the limit`() throws {
        let lines = try compare(parts: 1) { log in
            let server = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { socket, bytes, metadata in
                _ = try? socket.send(bytes, to: metadata.sender)
            } events: { _, _ in
            }
            let client = try DatagramSocket(connectedTo: server.localAddress) { socket, bytes, metadata in
                log.note("\(bytes.byteCount) of \(metadata.byteCount) bytes")
                log.note("from the server: \(metadata.sender == socket.peerAddress)")
                log.end()
            } events: { _, _ in
            }
            for socket in [server, client] { try RunLoop.current.add(socket, forMode: .default) }
            #expect(client.localAddress.ipv4 == 0x7f00_0001)
            do throws(IOError) { _ = try client.send([UInt8](repeating: 1, count: 70_000)) } catch {
                log.note("too long: \(code(of: error))")
            }
            _ = try client.send([UInt8](repeating: 1, count: 1000))
            return (server, client)
        }
        #expect(lines.count == 3)
    }
    @Test func `clients that a full backlog keeps waiting are served when there is room`() throws {
        let lines = try compare(parts: 4) { log in
            var options = Listener.Options()
            options.backlog = 1
            let listener = try Listener(.ipv4Loopback(port: 0), options: options) { _, connection in
                connection.close()
            } acceptErrors: { _, error in
                log.note("\(error)")
            }
            let clients = (0..<4).map { _ in
                let client = Connection(to: listener.localAddress)
                client.open(delegate: Party("client", log))
                return client
            }
            Timer.scheduled(after: .milliseconds(200)) { _ in
                try? RunLoop.current.add(listener, forMode: .common)
            }
            return (listener, clients)
        }
        #expect(lines == Array(repeating: "client has received 0 bytes and the end", count: 4))
    }

    @Test(arguments: [nil, true] as [Bool?])
    func `an IPv6 socket receives over IPv4 unless it excludes that`(isIPv6Only: Bool?) throws {
        let lines = try compare(parts: 1) { log in
            func socket(_ name: String, _ address: SocketAddress) throws -> DatagramSocket {
                var options = DatagramSocket.Options()
                options.isIPv6Only = isIPv6Only
                let socket = try DatagramSocket(boundTo: address, options: options) { _, _, metadata in
                    let sender = metadata.sender.map { "\($0)" } ?? ""
                    log.note("\(name) receives from \(sender.prefix { $0 != "." })")
                    log.end()
                } events: { _, _ in
                }
                try RunLoop.current.add(socket, forMode: .default)
                return socket
            }
            let first = try socket("IPv6", .ipv6Any(port: 0))
            let second = try? socket("IPv4", .ipv4Any(port: first.localAddress.port!))
            let client = try DatagramSocket(boundTo: .ipv4Any(port: 0)) { _, _, _ in
            } events: { _, _ in
            }
            _ = try client.send("x", to: .ipv4Loopback(port: first.localAddress.port!))
            return (first, second, client)
        }
        #expect(lines == [isIPv6Only == true ? "IPv4 receives from 127" : "IPv6 receives from [::ffff:127"])
    }
}
