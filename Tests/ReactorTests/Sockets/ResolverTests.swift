import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Names from the files of this machine, and names that cannot exist: no test queries a server.
@Suite(.runLoop) struct ResolverTests {
    @Test(arguments: ["127.0.0.1", "::1", "[::1]"])
    func `a numeric host is answered in the next pass, not within the call`(host: String) {
        var answers: [Resolver.Answer] = []
        Resolver.resolve(host: host, port: 80) { answers.append($0) }
        #expect(answers.isEmpty)
        RunLoop.current.poll()
        #expect(
            answers == [.success([host.contains(":") ? .ipv6Loopback(port: 80) : .ipv4Loopback(port: 80)])])
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test(arguments: ["localhost", "LOCALHOST"])
    func `localhost is answered on the loop's thread, each address once`(name: String) throws {
        let home = pthread_self()
        let answer = resolved { completion in
            Resolver.resolve(host: name, port: 4711) { answer in
                #expect(pthread_equal(home, pthread_self()) != 0)
                completion(answer)
            }
        }
        let addresses = try #require(try answer?.get())
        #expect(!addresses.isEmpty && addresses.allSatisfy { $0.isLoopback && $0.port == 4711 })
        #expect(Set(addresses).count == addresses.count)
        let ipv4 = resolved { Resolver.resolve(host: name, port: 1, family: .ipv4, completion: $0) }
        #expect(ipv4 == .success([.ipv4Loopback(port: 1)]))
    }

    @Test func `a service is a name or a port number`() {
        for service in ["http", "80"] {
            let answer = resolved { Resolver.resolve(host: "127.0.0.1", service: service, completion: $0) }
            #expect(answer == .success([.ipv4Loopback(port: 80)]))
        }
        let answer = resolved {
            Resolver.resolve(host: "::1", service: "tftp", transport: .datagram, completion: $0)
        }
        #expect(answer == .success([.ipv6Loopback(port: 69)]))
    }

    @Test func `an invalid name, an unknown service and another family each have an error code`() {
        func code(_ begin: (@escaping (Resolver.Answer) -> Void) -> Resolver.Lookup) -> CInt? {
            if case .failure(let error) = resolved(begin), case .resolver(let code) = error.reason {
                code
            } else {
                nil
            }
        }
        for name in ["", "localhost\0", String(repeating: "x", count: 64)] {
            #expect(code { Resolver.resolve(host: name, port: 1, completion: $0) } == EAI_NONAME)
        }
        for service in ["", "http\0", "no-such-service"] {
            let code = code { Resolver.resolve(host: "127.0.0.1", service: service, completion: $0) }
            #expect(code == EAI_SERVICE)
        }
        let family = code { Resolver.resolve(host: "127.0.0.1", port: 1, family: .ipv6, completion: $0) }
        #expect(family == -9)
        #expect(IOError.Reason.resolver(EAI_NONAME).description == String(cString: gai_strerror(EAI_NONAME)))
    }

    @Test func `an answer is delivered in the requested modes only`() {
        var modes: [RunLoop.Mode?] = []
        Resolver.resolve(host: "::1", port: 1, inModes: [.custom]) { _ in
            modes.append(RunLoop.current.currentMode)
        }
        #expect(RunLoop.current.poll() == .finished)
        #expect(runToTheEnd(in: .custom))
        #expect(modes == [.custom])
    }

    @Test func `a lookup without modes traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread { _ = Resolver.resolve(host: "::1", port: 1, inModes: []) { _ in } }
        }
        #expect(result.message.contains("mode"))
    }

    // MARK: Tasks

    @Test func `a task gets the addresses of a name or a service, or an error`() async throws {
        #expect(try await Resolver.resolve(host: "127.0.0.1", port: 7) == [.ipv4Loopback(port: 7)])
        let addresses = try await Resolver.resolve(host: "localhost", port: 7, family: .ipv4)
        #expect(addresses == [.ipv4Loopback(port: 7)])
        let service = try await Resolver.resolve(host: "127.0.0.1", service: "80", timeout: .seconds(600))
        #expect(service == [.ipv4Loopback(port: 80)])
        let error = await #expect(throws: IOError.self) {
            try await Resolver.resolve(host: "", port: 1)
        }
        #expect(error?.reason == .resolver(EAI_NONAME))
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

#if DEBUG

@testable import Reactor

@Suite(.runLoop) struct ResolverQueueTests {
    @Test func `the width of the queue limits concurrent lookups`() {
        let queue = ResolverQueue(width: 2)
        let counts = Shared((running: 0, most: 0))
        let (met, over) = (Countdown(2), Countdown(6))
        for _ in 0..<6 {
            let request = ResolverRequest(ResolverQuery(host: "127.0.0.1", service: .port(1))) { _ in
                counts.update { $0 = ($0.running + 1, max($0.most, $0.running + 1)) }
                met.count()
                met.wait()  // the first two wait for each other, so both are running
                counts.update { $0.running -= 1 }
                over.count()
            }
            queue.add(request)
        }
        over.wait()
        #expect(counts.value.most == 2)
    }
}

#endif

/// Runs the loop until the lookup that `begin` starts has ended, and returns its answer.
func resolved(_ begin: (@escaping (Resolver.Answer) -> Void) -> Resolver.Lookup) -> Resolver.Answer? {
    var answers: [Resolver.Answer] = []
    _ = begin { answers.append($0) }
    return runToTheEnd() && answers.count == 1 ? answers[0] : nil
}
