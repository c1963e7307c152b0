// testing-reactor day N    Runs N timers of one day in virtual time: wall-ms
// testing-reactor seeds N  Runs a client that is answered late, with N seeds: wall-us/seed answers

import Measuring
import Reactor
import ReactorTesting

/// A client sends a request a second, and a server answers each after a delay; both ends are on one loop.
final class Exchange: ConnectionDelegate {
    private let (client, server): (TestConnection, TestConnection)
    private(set) var answers = 0

    init() throws {
        (client, server) = try TestConnection.pair()
        client.chunkSizes = 1...8
        for end in [client, server] { end.connection.open(delegate: self) }
        for second in 1...3 {
            Timer.scheduled(after: .seconds(second)) { [client] _ in try? client.connection.send("request") }
        }
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        guard case .hasBytesAvailable = event else { return }
        let bytes = connection.receive(upTo: 100)
        if connection == client.connection {
            answers += bytes.count
        } else {
            Timer.scheduled(after: .milliseconds(200)) { _ in try? connection.send(bytes) }
        }
    }

    func close() {
        for end in [client, server] { end.connection.close() }
    }
}

func runDay(_ count: Int) {
    withVirtualTime { time in
        let start = now()
        for index in 1...count { Timer.scheduled(after: .seconds(86_400) / count * index) { _ in } }
        time.runUntilIdle()
        report([fixed(Double(now() - start) / 1e6, 2)])
    }
}

func runSeeds(_ count: Int) throws {
    let start = now()
    var answers = 0
    for seed in 0..<UInt64(count) {
        try withVirtualTime(seed: seed) { time in
            let exchange = try Exchange()
            time.runUntilIdle()
            answers += exchange.answers
            exchange.close()
        }
    }
    report([fixed(Double(now() - start) / 1e3 / Double(count)), "\(answers)"])
}

let (count, _, _) = numbers(from: 2)
if CommandLine.arguments[1] == "day" { runDay(count) } else { try runSeeds(count) }
