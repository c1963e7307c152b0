import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

#if DEBUG
@testable import Reactor
#endif

/// Running out of descriptors.
@Suite(.runLoop) struct ListenerFaultTests {
    @Test func `without descriptors a listener backs off and loses no client`() async throws {
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

    #if DEBUG
    @Test func `delays double from 10 to 320 ms, and start again after a success`() {
        var backoff = AcceptBackoff()
        let lengths = (0..<8).map { _ in backoff.next() }
        #expect(lengths == [10, 20, 40, 80, 160, 320, 320, 320].map { .milliseconds($0) })
        backoff.reset()
        #expect(backoff.next() == .milliseconds(10))
    }

    @Test func `a fault is reported at once, and then at most once a second`() {
        var backoff = AcceptBackoff()
        let start = Deadline(uptimeNanoseconds: 5)
        let reports = [0, 999, 1000, 1999].map { backoff.reports(at: start + .milliseconds($0)) }
        #expect(reports == [true, false, true, false])
    }
    #endif
}
