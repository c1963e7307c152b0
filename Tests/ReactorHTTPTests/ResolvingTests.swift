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

    /// What is written to the second can be read from the first.
    private static func pair() -> (read: CInt, write: CInt) {
        guard let pair = try? socketPair() else { fatalError("no sockets are left for a test") }
        return pair
    }

    /// Begins to hold the calling thread and those that it starts. False if the kernel does not allow that.
    static func hold() -> Bool {
        _ = (arrivals, isOpen)
        signal(SIGSYS) { _ in
            var (byte, gate) = (UInt8(0), pollfd(fd: Gate.isOpen.read, events: Int16(POLLIN), revents: 0))
            _ = write(Gate.arrivals.write, &byte, 1)
            poll(&gate, 1, -1)
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
}

@Suite(.runLoop) struct ResolvingTests {
    @Test func `a host's name is resolved`() throws {
        let server = try TestServer.sized(5)
        #expect(HTTPSession().run(server.url.replacing("127.0.0.1", with: "localhost")).body == "xxxxx")
        #expect(HTTPSession().run("http://name.invalid/").kind == .resolve)
    }

    @Test func `transfers end while the names of their hosts are still being resolved`() throws {
        // The kernel never lets the thread connect again.
        try onAThread {
            guard Gate.hold() else { return }
            let session = HTTPSession { $0.connectTimeout = nil }
            let cancelled = session.launch("http://cancelled.invalid/")
            let ending = HTTPSession()
            let ended = ending.launch("http://ended.invalid/")
            let timed = HTTPSession { $0.connectTimeout = .milliseconds(50) }.launch("http://timed.invalid/")
            let thread = try JoinableThread(name: "ends") {
                for _ in 0..<3 { Gate.waitForArrival() }
                cancelled.transfer.cancel()
                ending.invalidateAndCancel()
            }
            #expect(cancelled.wait().kind == .cancelled)
            #expect(ended.wait().kind == .sessionEnded)
            #expect(timed.wait().kind == .timedOut(.connect))
            Gate.open()
            thread.join()
        }
    }
}
