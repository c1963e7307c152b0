import CReactorTestSupport
import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// Holds threads in connect(2), with which getaddrinfo(3) asks its servers, until the test opens the gate.
private enum Gate {
    static let arrivals = pair()
    static let isOpen = pair()
    static let expiries = pair()

    /// What is written to the second can be read from the first.
    private static func pair() -> (read: CInt, write: CInt) {
        guard let pair = try? socketPair() else { fatalError("no sockets are left for a test") }
        return pair
    }

    /// Begins to hold the calling thread and those that it starts. False if the kernel does not allow that.
    static func hold() -> Bool {
        _ = (arrivals, isOpen, expiries)
        signal(SIGSYS) { _ in
            var (byte, gate) = (UInt8(0), pollfd(fd: Gate.isOpen.read, events: Int16(POLLIN), revents: 0))
            _ = write(Gate.arrivals.write, &byte, 1)
            // Ten seconds, so that a loop that waits for the thread fails the test.
            if poll(&gate, 1, 10_000) == 0 { _ = write(Gate.expiries.write, &byte, 1) }
        }
        return reactor_test_trap_connect()
    }

    static func waitForArrival() {
        var byte = UInt8(0)
        _ = read(arrivals.read, &byte, 1)
    }

    static func open() {
        var byte = UInt8(0)
        _ = write(isOpen.write, &byte, 1)
    }

    static var hasExpired: Bool {
        var expiry = pollfd(fd: expiries.read, events: Int16(POLLIN), revents: 0)
        return poll(&expiry, 1, 0) != 0
    }
}

@Suite(.runLoop) struct ResolvingTests {
    /// Starts a transfer to a name that is resolved until the gate opens.
    private static func start(
        _ name: String, in session: HTTPSession, _ outcomes: Shared<[String: Outcome]>
    ) -> HTTPTransfer {
        session.start(HTTPRequest("http://\(name).invalid/")) { [runLoop = session.runLoop] outcome in
            outcomes.update { $0[name] = outcome }
            runLoop.stop()
        }
    }

    @Test func `transfers end while the names of their hosts are still being resolved`() async throws {
        let outcomes = Shared<[String: Outcome]>([:])
        let isHeld = try await onItsOwnThread {
            guard Gate.hold() else { return false }
            let session = HTTPSession { $0.connectTimeout = nil }
            let transfer = Self.start("cancelled", in: session, outcomes)
            let ending = HTTPSession()
            _ = Self.start("ended", in: ending, outcomes)
            let timed = HTTPSession { $0.connectTimeout = .milliseconds(100) }
            _ = Self.start("timed", in: timed, outcomes)
            let thread = try ReactorTestSupport.JoinableThread(name: "ends") {
                for _ in 0..<3 { Gate.waitForArrival() }
                transfer.cancel()
                ending.invalidateAndCancel()
            }
            RunLoop.current.run { outcomes.value.count < 3 }
            #expect(!Gate.hasExpired)
            Gate.open()
            thread.join()
            return true
        }
        guard isHeld else { return }
        #expect(outcomes.value["cancelled"]?.kind == .cancelled)
        #expect(outcomes.value["ended"]?.kind == .sessionEnded)
        #expect(outcomes.value["timed"]?.kind == .timedOut(.connect))
    }
}
