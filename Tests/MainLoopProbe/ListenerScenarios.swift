import Glibc
import Reactor
import SystemPackage

// MARK: Listeners, where descriptors run out, or many are needed

/// With no descriptor left for a connection, the listener backs off without spinning, reports why, and continues
/// when there are some.
@MainActor func outOfDescriptorsForConnections() throws {
    let loop = RunLoop.main
    var (connections, faults) = (0, 0)
    let limit = descriptorLimit
    let listener = try Listener(.ipv4Loopback(port: 0)) { listener, _ in
        connections += 1
        if connections == 3 { listener.close() }
    } acceptErrors: { listener, error in
        faults += 1
        print(
            error == IOError(.accept, "\(listener.localAddress)", .tooManyOpenFiles),
            listener.acceptError == error)
    }
    try loop.add(listener, forMode: .custom)
    loop.run(mode: .custom, before: .distantPast)
    let clients = try (0..<3).map { _ in try connected(to: listener.localAddress) }

    descriptorLimit = 0
    var passes = 0
    loop.add(RunLoop.Observer(for: .beforeWaiting) { _, _ in passes += 1 }, forMode: .custom)
    loop.run(in: .custom, until: .now.advanced(by: .milliseconds(100)))
    print("connections", connections, "faults", faults, "calm", passes < 20)

    descriptorLimit = limit
    print(loop.run(in: .custom))
    print("connections", connections, "faults", faults)
    withExtendedLifetime(clients) {}
}

/// More clients connect than the process has descriptors for. Prints how many connections the listener accepts, and how
/// many descriptors it leaves; then the same with one descriptor more.
@MainActor func descriptorsBesideConnections() throws {
    let loop = RunLoop.main
    var (connections, expected): ([Connection], Int) = ([], 6)
    let listener = try Listener(.ipv4Loopback(port: 0)) { _, connection in
        connections.append(connection)
    } acceptErrors: { _, error in
        print(error.errno == .tooManyOpenFiles)
    }
    let observer = RunLoop.Observer(for: .beforeWaiting) { _, _ in
        if listener.acceptError != nil, connections.count >= expected { loop.stop() }
    }
    loop.add(observer, forMode: .custom)
    try loop.add(listener, forMode: .custom)
    loop.run(mode: .custom, before: .distantPast)
    let clients = try (0..<12).map { _ in try connected(to: listener.localAddress) }
    let next = try clients[0].duplicate()
    try next.close()
    descriptorLimit = rlim_t(next.rawValue + 10)
    for _ in 0..<2 {
        loop.run(in: .custom)
        let spare = ExhaustedDescriptors(sparing: 0)
        print("accepted", connections.count, "left", spare.count)
        spare.free()
        expected += 1
        descriptorLimit += 1
    }
}

/// The limit is lowered to 50 more descriptors when a connection has been accepted already. Prints how many are accepted.
@MainActor func fewerDescriptorsBesideConnections() throws {
    let loop = RunLoop.main
    var connections: [Connection] = []
    let listener = try Listener(.ipv4Loopback(port: 0)) { _, connection in
        connections.append(connection)
    } acceptErrors: { _, _ in
        loop.stop()
    }
    try loop.add(listener, forMode: .custom)
    var clients = [try connected(to: listener.localAddress)]
    loop.run(mode: .custom, before: .distantFuture)
    for _ in 0..<60 { clients.append(try connected(to: listener.localAddress)) }
    let next = try clients[0].duplicate()
    try next.close()
    descriptorLimit = rlim_t(next.rawValue + 50)
    loop.run(in: .custom)
    print("accepted", connections.count)
    withExtendedLifetime(clients) {}
}

/// Removed from its mode, and closed, while it backs off.
@MainActor func leavingDuringBackoff() throws {
    let loop = RunLoop.main
    let limit = descriptorLimit
    for isClosed in [false, true] {
        var connections = 0
        let listener = try Listener(.ipv4Loopback(port: 0)) { listener, _ in
            connections += 1
            listener.close()
        } acceptErrors: { listener, _ in
            if isClosed { listener.close() } else { loop.remove(listener, forMode: .custom) }
        }
        try loop.add(listener, forMode: .custom)
        loop.run(mode: .custom, before: .distantPast)
        let client = try connected(to: listener.localAddress)
        descriptorLimit = 0
        print(loop.run(in: .custom), listener.isValid, listener.acceptError == nil)
        descriptorLimit = limit
        try loop.add(listener, forMode: .custom)
        print(loop.run(in: .custom), connections)
        withExtendedLifetime(client) {}
    }
}

/// Drains a listener while the process has no descriptor left: one in a mode, and one in none.
@MainActor func drainingWithoutDescriptors() throws {
    let loop = RunLoop.main
    let limit = descriptorLimit
    for isInLoop in [true, false] {
        var connections = 0
        let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in
            connections += 1
        } acceptErrors: { _, error in
            print(error.errno == .tooManyOpenFiles)
        }
        try loop.add(listener, forMode: .custom)
        loop.run(mode: .custom, before: .distantPast)
        let clients = try (0..<3).map { _ in try connected(to: listener.localAddress) }
        if !isInLoop { loop.remove(listener, forMode: .custom) }
        descriptorLimit = 0
        listener.drain()
        print(listener.isValid, connections)
        descriptorLimit = limit
        print(loop.run(in: .custom), listener.isValid, connections)
        withExtendedLifetime(clients) {}
    }
}

/// A socket that was shut down, and so no longer listens, is a fault and does not make the loop spin.
@MainActor func shutDownListener() throws {
    let loop = RunLoop.main
    var number: CInt = -1
    for candidate in 3..<CInt(64) where fcntl(candidate, F_GETFD) == -1 {
        number = candidate
        break
    }
    let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in
    } acceptErrors: { _, error in
        print(error.errno == .invalidArgument)
    }
    try loop.add(listener, forMode: .custom)
    shutdown(number, CInt(SHUT_RDWR))
    var passes = 0
    loop.add(RunLoop.Observer(for: .beforeWaiting) { _, _ in passes += 1 }, forMode: .custom)
    loop.run(in: .custom, until: .now.advanced(by: .milliseconds(50)))
    print("calm", passes < 20)
    listener.close()
}

private func connected(to address: SocketAddress) throws -> FileDescriptor {
    let number = socket(CInt(address.family.rawValue), CInt(SOCK_STREAM.rawValue), 0)
    guard number >= 0, address.withSockAddr({ connect(number, $0, $1) }) == 0 else {
        throw Errno(rawValue: errno)
    }
    return FileDescriptor(rawValue: number)
}

/// In a program without ReactorTLS, every security level ends the streams, and no plain bytes are sent.
@MainActor func securityWithoutTLS() throws {
    for level in ["TLSv1", "NegotiatedSSL", "SSLv3", "None"] {
        let name = "kCFStreamSocketSecurityLevel" + level
        var numbers: [CInt] = [0, 0]
        try SystemCall.make { socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &numbers) }
        let (input, output) = Connection(
            descriptor: FileDescriptor(rawValue: numbers[0]), closeWhenDone: false
        ).streams
        let isSet = input.setProperty(
            name, forKey: Stream.PropertyKey("kCFStreamPropertySocketSecurityLevel"))
        output.open()
        let error = output.streamError as? IOError
        print(level, isSet, output.write([1]), error?.reason == .securityUnavailable(level: name))
    }
}
