#if DEBUG

import Glibc
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@testable import Reactor

/// Several addresses, of which one may answer.
@Suite(.runLoop) struct HappyEyeballsTests {
    private let loop = RunLoop.current

    /// The outcome of connecting to one of `addresses`, and how long it took in virtual time.
    private func outcome(
        of addresses: [SocketAddress], meanwhile: () -> Void = {}
    ) -> (peer: SocketAddress?, error: Errno?, time: Duration) {
        withVirtualTime { time in
            var outcome: HappyEyeballs.Outcome?
            let begin = time.now
            let race = HappyEyeballs { outcome = $0 }
            race.connect(to: addresses)
            loop.poll()
            meanwhile()
            while outcome == nil, loop.run(mode: .default, before: .distantFuture) {}
            // Nothing is left to be done.
            #expect(loop.run(in: .default, until: .distantPast) == .finished)
            switch outcome {
            case .success(let socket): return (socket.peer, nil, time.now - begin)
            case .failure(let error): return (nil, error, time.now - begin)
            case nil: return (nil, nil, time.now - begin)
            }
        }
    }

    @Test(arguments: AddressKind.allCases, AddressKind.allCases)
    func `after a refusal the next address is tried at once`(first: AddressKind, second: AddressKind) throws {
        let server = try SocketServer(second)
        let (peer, error, _) = outcome(of: [refusingAddress(first), server.address])
        #expect(peer == server.address && error == nil)
    }

    @Test func `after 250 ms of silence the next address is tried`() throws {
        let (silent, server) = (try FullServer(), try SocketServer(.ipv6))
        let (peer, _, time) = outcome(of: [silent.address, server.address])
        #expect(peer == server.address && time >= .milliseconds(250) && time < .milliseconds(260))
    }

    @Test func `a silent address may still win after later ones have refused`() throws {
        let silent = try FullServer(.path)
        let addresses = [silent.address, refusingAddress(), refusingAddress(.ipv6)]
        #expect(outcome(of: addresses, meanwhile: silent.acceptOne).peer == silent.address)
    }

    @Test func `if all addresses fail, the error is the last one's`() throws {
        let (refusing, missing) = (refusingAddress(), refusingAddress(.path))
        #expect(outcome(of: [refusing, missing]).error == .noSuchFileOrDirectory)
        #expect(outcome(of: [missing, refusing]).error == .connectionRefused)
        #expect(outcome(of: [missing]).error == .noSuchFileOrDirectory)
        #expect(outcome(of: []).error != nil)
    }
}

#endif
