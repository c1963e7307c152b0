import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Names from the files of this machine, and names that cannot exist: no test queries a server.
@Suite(.runLoop) struct ResolverTests {
    @Test(arguments: [
        ("127.0.0.1", SocketAddress.ipv4Loopback(port: 80)), ("::1", .ipv6Loopback(port: 80)),
        ("[::1]", .ipv6Loopback(port: 80)),
    ])
    func `a numeric host is answered in the next pass, not within the call`(
        host: String, address: SocketAddress
    ) {
        var answers: [Resolver.Answer] = []
        Resolver.resolve(host: host, port: 80) { answers.append($0) }
        #expect(answers.isEmpty)
        RunLoop.current.poll()
        #expect(answers == [.success([address])])
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test(arguments: ["localhost", "LOCALHOST"])
    func `localhost is answered on the loop's thread`(name: String) throws {
        let home = pthread_self()
        let answer = resolved { completion in
            Resolver.resolve(host: name, port: 4711) { answer in
                #expect(pthread_equal(home, pthread_self()) != 0)
                completion(answer)
            }
        }
        let addresses = try #require(try answer?.get())
        #expect(!addresses.isEmpty)
        for address in addresses {
            #expect(address.isLoopback)
            #expect(address.port == 4711)
        }
        #expect(Set(addresses).count == addresses.count)
    }

    @Test func `only addresses of the requested family are returned`() async throws {
        let answer = try await onItsOwnThread {
            resolved { Resolver.resolve(host: "localhost", port: 1, family: .ipv4, completion: $0) }
        }
        #expect(answer == .success([.ipv4Loopback(port: 1)]))
    }

    @Test func `a service is a name or a port number`() {
        for service in ["http", "80"] {
            let answer = resolved { completion in
                Resolver.resolve(host: "127.0.0.1", service: service, completion: completion)
            }
            #expect(answer == .success([.ipv4Loopback(port: 80)]))
        }
        let answer = resolved { completion in
            Resolver.resolve(
                host: "::1", service: "tftp", transport: .datagram, completion: completion)
        }
        #expect(answer == .success([.ipv6Loopback(port: 69)]))
    }

    @Test(arguments: ["", "localhost%00", String(repeating: "x", count: 64)])
    func `an invalid name is unknown`(name: String) async throws {
        let answer = try await onItsOwnThread {
            resolved { Resolver.resolve(host: name.withZeros, port: 1, completion: $0) }
        }
        #expect(answer?.error?.code == .unknownName)
    }

    @Test(arguments: ["", "http%00", "no-such-service"])
    func `an unknown service has its own error code`(service: String) async throws {
        let answer = try await onItsOwnThread {
            resolved { Resolver.resolve(host: "127.0.0.1", service: service.withZeros, completion: $0) }
        }
        #expect(answer?.error?.code == .unknownService)
    }

    @Test func `a numeric host of another family is an error`() async throws {
        let answer = try await onItsOwnThread {
            resolved { Resolver.resolve(host: "127.0.0.1", port: 1, family: .ipv6, completion: $0) }
        }
        #expect(answer?.error?.code == .noAddressInFamily)
    }

    @Test func `many concurrent lookups are each answered once`() {
        var ports: [UInt16] = []
        for port in 1...50 as ClosedRange<UInt16> {
            Resolver.resolve(host: port % 3 == 0 ? "127.0.0.1" : "localhost", port: port) { answer in
                ports.append((try? answer.get().first?.port) ?? 0)
            }
        }
        #expect(runToTheEnd())
        #expect(ports.sorted() == Array(1...50))
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

    @Test func `an error code has the text of gai_strerror`() {
        let text = String(cString: gai_strerror(EAI_NONAME))
        #expect(ResolverError.Code.unknownName.description == text)
        #expect(ResolverError.Code.temporaryFailure.description.contains("emporary"))
    }

    @Test func `a lookup without modes traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try await onItsOwnThread { _ = Resolver.resolve(host: "::1", port: 1, inModes: []) { _ in } }
        }
        #expect(result.message.contains("at least one mode"))
    }
}

extension Result {
    fileprivate var error: Failure? { if case .failure(let error) = self { error } else { nil } }
}

/// Runs the loop until the lookup that `begin` starts has ended, and returns its answer.
func resolved(_ begin: (@escaping (Resolver.Answer) -> Void) -> Resolver.Lookup) -> Resolver.Answer? {
    var answers: [Resolver.Answer] = []
    _ = begin { answers.append($0) }
    return runToTheEnd() && answers.count == 1 ? answers[0] : nil
}
