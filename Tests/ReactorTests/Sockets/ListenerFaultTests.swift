import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Tests in a process of their own: running out of descriptors, and very many clients.
@Suite(.runLoop) struct ListenerFaultTests {
    @Test func `without descriptors a listener backs off, reports it once, and loses no client`() async throws
    {
        let lines = try await probeMainLoop("out of descriptors for connections")
        #expect(
            lines == [
                "true true", "connections 0 faults 1 calm true", "finished", "connections 3 faults 1",
            ])
    }

    @Test func `a listener may be removed or closed while it backs off`() async throws {
        let lines = try await probeMainLoop("leaving during a back-off")
        #expect(lines == ["finished true true", "finished 1", "finished false true", "finished 0"])
    }

    @Test func `connections leave some descriptors to the rest of the program`() async throws {
        let lines = try await probeMainLoop("descriptors beside connections")
        #expect(lines == ["true", "accepted 6 left 4", "accepted 7 left 4"])
    }

    @Test func `a socket that was shut down is a fault, and the loop does not spin`() async throws {
        #expect(try await probeMainLoop("a listener that is shut down") == ["true", "calm true"])
    }

    @Test func `ten thousand connections are open at once`() async throws {
        let count = 10_000
        guard raiseDescriptorLimit(to: rlim_t(count + 1000)) else { return }
        let (address, isOver) = (Shared<SocketAddress?>(nil), Countdown(1))
        let server = try RunLoopThread(name: "server")
        try server.runLoop.performAndWait {
            var connections: [Listener.Connection] = []
            let listener = try addListener(.ipv4Loopback(port: 0)) { listener, connection in
                connections.append(connection)
                guard connections.count == count else { return }
                connections = []
                listener.close()
                isOver.count()
            }
            address.value = listener.localAddress
        }
        let port = try #require(address.value?.port)
        let lines = try await probeMainLoop("many clients", ["\(port)", "\(count)"])
        #expect(lines == ["\(count)"])
        isOver.wait()
        server.stop()
    }
}

/// Whether this process may have `count` descriptors now.
private func raiseDescriptorLimit(to count: rlim_t) -> Bool {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    guard limit.rlim_cur < count else { return true }
    limit.rlim_cur = count
    if setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 { return true }
    print("Ten thousand connections are not tried: the limit of descriptors is \(limit.rlim_max).")
    return false
}
