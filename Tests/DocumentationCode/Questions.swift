// The code of the article Questions.md; see Articles.swift.

import Reactor
import ReactorTLS

private final class Search {
    private var timer: Timer?
    private func search() {}

    func textChanged() {
        if let timer, timer.isValid {
            timer.fireDate = .now + .milliseconds(300)
        } else {
            timer = Timer.scheduled(after: .milliseconds(300)) { [weak self] _ in self?.search() }
        }
    }
}

private func answer(_ request: [UInt8]) async -> [UInt8] { request }

private func serveSlowly(_ connection: Connection) async throws {
    let clock = RunLoop.main.clock()
    var next = clock.now
    for try await request in connection.messages(.delimiter()) {
        try await clock.sleep(until: next)  // meanwhile nothing is read, so the client has to wait
        next = max(next, clock.now) + .milliseconds(100)
        try await connection.write(await answer(request))
    }
}

private func ask(_ primary: Connection, _ secondary: Connection) async throws -> [UInt8]? {
    try await withThrowingTaskGroup(of: [UInt8]?.self) { group in
        group.addTask { try await primary.read(until: [10]) }
        group.addTask { try await secondary.read(until: [10]) }
        defer { group.cancelAll() }  // what the other one has received stays with its connection
        return try await group.next() ?? nil
    }
}

private func connectWithCertificate() async throws {
    let identity = try TLSIdentity(certificateFile: "client.pem", keyFile: "client.key")
    let connection = try await Connection.connect(
        toHost: "db.internal", port: 5433, security: .tls(.client(identity)))
    connection.close()
}

private func requireCertificates(_ identity: TLSIdentity) {
    var settings = TLSSettings.server(identity)
    settings.clientCertificates = .required
    settings.trust = .file("clients-authority.pem")
    print(settings)
}
