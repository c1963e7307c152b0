import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Connecting on the streams thread at the moment of an action on another thread.
@Suite(.runLoop) struct SocketStreamConnectRaceTests {
    @Test func `closing at the moment of connecting leaves no connection open`() async {
        await #expect(processExitsWith: .success) {
            let sockets = try streamsLoop()
            let before = openSockets()
            for _ in 0..<10 {
                let (fixture, gate) = (try SocketFixture(), Gate())
                let server = fixture.server
                // It has woken for the connection, and is about to take it.
                sockets.performAndWait {
                    let observer = RunLoop.Observer(for: .afterWaiting) { observer, _ in
                        guard server?.hasPendingConnection == true else { return }
                        observer.invalidate()
                        gate.pass()
                    }
                    RunLoop.current.add(observer, forMode: .default)
                }
                fixture.input.open()
                gate.waitForArrival()
                fixture.releaseStreams()
                gate.open()
                // Else the server's end would be the connection's.
                sockets.performAndWait {}
            }
            try #require(openSockets() == before)
        }
    }

    @Test func `opening on one thread and closing on another leaves nothing behind`() async {
        await #expect(processExitsWith: .success) {
            _ = try streamsLoop()
            let before = openSockets()
            struct Internals { weak var object: AnyObject? }
            var engines: [Internals] = []
            for _ in 0..<500 {
                let fixture = try SocketFixture(.abstract)
                fixture.releaseOutput()
                engines.append(Internals(object: fixture.input.internals))
                let input = Carrier(fixture.input!)
                onThreads(2) { index in
                    if index == 0 { return input.value.open() }
                    while input.value.streamStatus == .notOpen {}
                    input.value.close()
                }
            }
            waitUntil { openSockets() == before && engines.allSatisfy { $0.object == nil } }
        }
    }

    @Test func `getting properties while connecting does not disturb`() throws {
        for _ in 0..<300 {
            let fixture = try SocketFixture(.abstract)
            let input = Carrier(fixture.input!)
            let asker = try JoinableThread(name: "asker") {
                while input.value.streamStatus != .open {
                    _ = input.value.property(forKey: .socketLocalAddressKey)
                    _ = input.value.setProperty(true, forKey: .socketKeepAliveKey)
                }
            }
            fixture.input.open()
            fixture.output.open()
            #expect(fixture.output.write([1]) == 1)
            asker.join()
            #expect(try fixture.peer.receive(1) == [1])
        }
    }
}

/// A gate at which one thread waits until another opens it.
private final class Gate: Sendable {
    private let arrived = Answer<Void>()
    private let opened = Answer<Void>()

    func pass() {
        arrived.give(())
        opened.wait()
    }

    func waitForArrival() { arrived.wait() }

    func open() { opened.give(()) }
}
