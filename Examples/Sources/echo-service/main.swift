// An echo server as a service of swift-service-lifecycle, on a thread and a loop of its own: echo-service [PORT]
//
// After SIGINT or SIGTERM it accepts what is in the backlog and no later connections, and exits when its clients have
// disconnected, or have not for five seconds.

import ExampleSupport
import Glibc
import Logging
import Reactor
import ServiceLifecycle
import UnixSignals

/// Accepts connections until its group shuts down.
struct EchoService: Service {
    let connections: Listener.Connections

    func run() async throws {
        MainProgram.printLine("Listening on \(connections.localAddress)")
        try await withGracefulShutdownHandler {
            // Sends back what each client sends, on the loop's thread.
            try await connections.run { connection in
                do {
                    for try await chunk in connection.chunks() { try await connection.write(chunk) }
                } catch {
                    MainProgram.report("\(connection): \(error)")
                }
            }
        } onGracefulShutdown: {
            connections.drain()
        }
    }
}

// What the loop has to report, with REACTOR_DEBUG=1, goes where the service's messages go.
var logger = Logger(label: "echo") { StreamLogHandler.standardError(label: $0) }
logger.logLevel = .warning
LoopDiagnostics.setReportHandler { [logger] report in
    logger.warning("\(report.text)", metadata: ["kind": "\(report.kind)"])
}

let port = MainProgram.argument("PORT", otherwise: 7007) { UInt16($0) }
do {
    try await withRunLoopThread(name: "echo") { thread in
        let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: port)) { fault in
            MainProgram.report("\(fault)")
        }
        var configuration = ServiceGroupConfiguration(
            services: [EchoService(connections: connections)], gracefulShutdownSignals: [.sigint, .sigterm],
            logger: logger)
        configuration.maximumGracefulShutdownDuration = .seconds(5)
        let group = ServiceGroup(configuration: configuration)
        try await group.run()
    }
} catch {
    MainProgram.end("\(error)")
}
