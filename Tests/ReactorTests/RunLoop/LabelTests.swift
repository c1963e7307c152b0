import Dispatch
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct LabelTests {
    @Test func `a dump shows labels, what streams read, and what is overdue`() async throws {
        let dump = try await onItsOwnThread { () -> String in
            let loop = RunLoop.current
            let pipe = try TestPipe()
            let timer = Timer.scheduled(after: .zero, label: "heartbeat") { _ in }
            waitUntil { timer.fireDate < .now }
            loop.add(RunLoop.Source(label: "inbox") {}, forMode: .default)
            loop.add(RunLoop.Observer(label: "probe") { _, _ in }, forMode: .default)
            let source = DescriptorSource(pipe.readEnd, for: .readable, label: "pipe") { _, _ in }
            try loop.add(source, forMode: .default)
            let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in
            } faults: { _, _ in
            }
            listener.label = "front"
            try loop.add(listener, forMode: .default)
            let input = InputStream(path: "/etc/passwd")
            input.label = "users"
            input.schedule(in: loop, forMode: .default)
            input.open()
            let dump = loop.debugDescription
            input.close()
            listener.close()
            return dump
        }
        for part in [
            "timer 'heartbeat': overdue by", "source 'inbox': order 0", "observer 'probe': all activities",
            ": readable 'pipe'", "listener at ", " 'front'", "input stream of /etc/passwd 'users': open",
        ] {
            #expect(dump.contains(part), "\(part) in:\n\(dump)")
        }
    }

    @Test func `items explain themselves by their labels`() throws {
        let timer = Timer(interval: .seconds(1), label: "a") { _ in }
        #expect(timer.explain().hasPrefix("The timer 'a' is in no run loop"))
        timer.label = "b"
        #expect(timer.label == "b")
        #expect(timer.description.hasPrefix("timer 'b': in "))
        timer.label = nil
        #expect(timer.explain().hasPrefix("The timer is in no run loop"))
        let source = RunLoop.Source(label: "c") {}
        #expect(source.explain().hasPrefix("The source 'c' is in no run loop"))
        let pipe = try TestPipe()
        let input = InputStream(descriptor: pipe.readEnd)
        input.label = "d"
        #expect(
            input.explain().hasPrefix(
                "The input stream of descriptor \(pipe.readEnd.rawValue) 'd' is not"))
        let reader = LineReader(input, into: 0, on: DispatchQueue(label: "lines")) { _, _, _ in }
        reader.label = "e"
        #expect(reader.explain() == "The hand-off 'e' has not been started: call start().")
    }

    @Test func `a hand-off counts the bytes that wait for its processor`() throws {
        let queue = DispatchQueue(label: "suspended")
        queue.suspend()
        let pipe = try TestPipe()
        let reader = LineReader(InputStream(descriptor: pipe.readEnd), into: 0, on: queue) { _, _, _ in }
        reader.start { _ in RunLoop.current.stop() }
        pipe.put(5)
        RunLoop.current.run(in: .default, returnAfterSourceHandled: true)
        #expect(reader.waitingByteCount == 5)
        reader.cancel()
        RunLoop.current.run(in: .default)
        #expect(reader.waitingByteCount == 0)
        queue.resume()
    }
}
