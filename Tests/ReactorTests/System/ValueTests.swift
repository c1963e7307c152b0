import Glibc
import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct ValueTests {
    @Test(arguments: [
        (Signal.interrupt, SIGINT, "SIGINT"), (.terminate, SIGTERM, "SIGTERM"), (.hangUp, SIGHUP, "SIGHUP"),
        (.quit, SIGQUIT, "SIGQUIT"), (.kill, SIGKILL, "SIGKILL"),
        (Signal(rawValue: SIGCHLD), SIGCHLD, "SIGCHLD"),
        (.resume, SIGCONT, "SIGCONT"), (.windowSizeChange, SIGWINCH, "SIGWINCH"),
        (Signal(rawValue: 40), 40, "signal 40"),
    ])
    func `a signal has its number, and shows its name if it has one`(
        signal: Signal, number: CInt, name: String
    ) {
        #expect(signal.rawValue == number && signal == Signal(rawValue: number))
        #expect("\(signal)" == name)
    }

    @Test(arguments: [
        "127.0.0.1:80", "[::1]:80", "unix:/run/a.sock", "unix-abstract:name", "unix:",
    ])
    func `an address is made of its description`(text: String) {
        func copy<Value: LosslessStringConvertible>(_ value: Value) -> Value? { Value("\(value)") }
        let address = SocketAddress(text)
        #expect(address != nil && address.flatMap(copy) == address && address?.description == text)
    }

    @Test func `a deadline shows the clock's time`() {
        #expect("\(Deadline(uptimeNanoseconds: 12_500_000_000))" == "uptime 12.5 seconds")
        #expect("\(Deadline.distantFuture), \(Deadline.distantPast)" == "distant future, distant past")
    }

    @Test func `what a loop serves is equal to itself only`() throws {
        let timers = [Timer(interval: .seconds(1)) { _ in }, Timer(interval: .seconds(1)) { _ in }]
        #expect(Set(timers + timers).count == 2)
        let sources = [RunLoop.Source {}, RunLoop.Source {}]
        #expect(Set(sources + sources).count == 2)
        let observers = (0..<2).map { _ in RunLoop.Observer(for: .exit) { _, _ in } }
        #expect(Set(observers + observers).count == 2)
        let signals: [EventSource] = try (0..<2).map { _ in try SignalSource(.windowSizeChange) { _, _ in } }
        #expect(Set(signals + signals).count == 2)
        for case let source as SignalSource in signals { source.cancel() }
    }

    @Test func `a child's configuration shows the names of its variables and not their values`() {
        for environment in [.custom(["B": "secret", "A": ""]), .updated(["B": "secret", "A": nil])]
            as [ChildProcess.Configuration.Environment]
        {
            let configuration = ChildProcess.Configuration("true", environment: environment)
            var dumped = ""
            dump(configuration, to: &dumped)
            for text in ["\(configuration)", String(reflecting: configuration), "\(environment)", dumped] {
                #expect(text.contains(": A, B") && !text.contains("secret"))
            }
        }
    }
}
