#if DEBUG

import Glibc
import SystemPackage
import ReactorTesting
import Testing

@testable import Reactor

/// Several addresses, of which one may answer.
@Suite(.runLoop) struct HappyEyeballsTests {
    /// The outcome of connecting to one of `addresses`, and how long it took.
    private func outcome(
        of addresses: [SocketAddress], within patience: Duration = RunLoop.testPatience
    ) -> (peer: SocketAddress?, error: Errno?, time: Duration) {
        var outcome: SocketConnector.Outcome?
        let begin = Deadline.now
        let race = HappyEyeballs(until: begin.advanced(by: patience)) { outcome = $0 }
        race.connect(to: addresses)
        while outcome == nil, RunLoop.current.run(mode: .default, before: .minutesAway) {}
        // Nothing is left to be done.
        #expect(RunLoop.current.run(in: .default, until: .distantPast) == .finished)
        let time = Deadline.now - begin
        switch outcome {
        case .success(let socket):
            return (socket.peer, nil, time)
        case .failure(let error): return (nil, error as? Errno, time)
        case nil: return (nil, nil, time)
        }
    }

    @Test(arguments: AddressKind.allCases, AddressKind.allCases)
    func `after a refusal the next address is tried at once`(
        first: AddressKind, second: AddressKind
    )
        async throws
    {
        try await onItsOwnThread {
            let server = try SocketServer(second)
            let (peer, error, _) = outcome(of: [try refusingAddress(first), server.address])
            #expect(peer == server.address && error == nil)
        }
    }

    @Test func `after 250 ms of silence the next address is tried`()
        async throws
    {
        try await onItsOwnThread {
            let (silent, server) = (try FullServer(), try SocketServer(.ipv6))
            let (peer, _, time) = outcome(of: [silent.address, server.address])
            #expect(peer == server.address && time >= .milliseconds(250))
        }
    }

    @Test func `a silent address may still win after later ones have refused`()
        async throws
    {
        try await onItsOwnThread {
            let silent = try FullServer(.path)
            var outcome: SocketConnector.Outcome?
            let race = HappyEyeballs(until: .minutesAway) { outcome = $0 }
            race.connect(to: [silent.address, try refusingAddress(), try refusingAddress(.ipv6)])
            RunLoop.current.run(in: .default, until: .after(milliseconds: 5))
            #expect(outcome == nil)
            silent.acceptOne()
            while outcome == nil, RunLoop.current.run(mode: .default, before: .minutesAway) {}
            #expect(try outcome?.get().peer == silent.address)
        }
    }

    @Test func `if all addresses fail, the error is the last one's`() throws {
        let (refusing, missing) = (try refusingAddress(), try refusingAddress(.path))
        #expect(outcome(of: [refusing, missing]).error == .noSuchFileOrDirectory)
        #expect(outcome(of: [missing, refusing]).error == .connectionRefused)
        #expect(outcome(of: [missing]).error == .noSuchFileOrDirectory)
        #expect(outcome(of: []).error != nil)
    }

    @Test func `if all addresses are silent, the attempt times out`() throws {
        let silent = [try FullServer(), try FullServer(.ipv6), try FullServer(.abstract)]
        let (_, error, time) = outcome(of: silent.map(\.address), within: .milliseconds(600))
        #expect(error == .timedOut && time >= .milliseconds(600))
    }

    @Test func `cancelling a retry of a full listener leaves no timer`() throws {
        let full = try FullServer(.path)
        let race = HappyEyeballs(until: .minutesAway) { _ in Issue.record("it had ended") }
        race.connect(to: [full.address])
        race.cancel()
        #expect(RunLoop.current.run(in: .default, until: .distantPast) == .finished)
    }

    @Test func `success, failure and cancellation leave no descriptor open`() async {
        await #expect(processExitsWith: .success) {
            let (silent, server) = (try FullServer(), try SocketServer())
            func once(_ way: Int) throws {
                var outcome: SocketConnector.Outcome?
                let race = HappyEyeballs(until: .after(milliseconds: way == 1 ? 300 : 100_000)) {
                    outcome = $0
                }
                race.connect(to: [silent.address] + (way == 0 ? [server.address] : [silent.address]))
                if way == 2 { race.cancel() }
                while outcome == nil, RunLoop.current.run(mode: .default, before: .minutesAway) {}
                // The outcome is dropped, and its socket with it.
            }
            let before = openSockets()
            for way in 0..<3 { try once(way) }
            try #require(openSockets() == before)
        }
    }
}

#endif
