import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ResolverTaskTests {
    @Test func `a task resolves a numeric address, a name and a service`() async throws {
        #expect(try await Resolver.resolve(host: "127.0.0.1", port: 7) == [.ipv4Loopback(port: 7)])
        let addresses = try await Resolver.resolve(host: "localhost", port: 7, family: .ipv4)
        #expect(addresses == [.ipv4Loopback(port: 7)])
        let service = try await Resolver.resolve(
            host: "127.0.0.1", service: "80", timeout: .seconds(600))
        #expect(service == [.ipv4Loopback(port: 80)])
    }

    @Test func `a name that cannot be resolved is an error`() async {
        let error = await #expect(throws: ResolverError.self) {
            try await Resolver.resolve(host: "", port: 1)
        }
        #expect(error?.code == .unknownName)
    }

    @Test func `a timeout that has passed is an error`() async {
        await #expect(throws: IOError(.resolve, "localhost", .timedOut)) {
            try await Resolver.resolve(host: "localhost", port: 1, timeout: .zero)
        }
    }

    @Test func `a task that is cancelled at any moment gets the answer or an error`() async {
        for round in 0..<100 {
            let task = Task {
                do {
                    _ = try await Resolver.resolve(host: "localhost", port: 1)
                    return true
                } catch {
                    return error is CancellationError
                }
            }
            for _ in 0..<round % 5 { await Task.yield() }
            task.cancel()
            #expect(await task.value)
        }
    }
}
