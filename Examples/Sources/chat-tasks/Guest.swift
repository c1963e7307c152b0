import Reactor

/// A connected client.
@MainActor
final class Guest {
    /// How long a guest may accept no line before it is disconnected.
    private static let writeTimeout = Duration.seconds(10)

    var name: String
    /// Why the guest was disconnected; nil if it left.
    private(set) var fault: String?
    private let connection: Connection
    private var lastSend: Task<Void, Never>?
    private var isLeaving = false

    init(_ connection: Connection, name: String) {
        (self.connection, self.name) = (connection, name)
    }

    /// What the guest sends. Without control characters, it cannot send escape sequences to the others' terminals.
    func readLines(_ handle: (String) async -> Bool) async {
        let lines = connection.lines(limit: 1000, overflow: .truncate)
        do {
            for try await line in lines {
                let text = line.unicodeScalars.filter { $0.properties.generalCategory != .control }
                guard await handle(String(String.UnicodeScalarView(text))) else { return }
            }
        } catch {
            fault = fault ?? "\(error)"
        }
    }

    /// Sends a line after those before it. Who awaits the result reads no faster than this guest does.
    @discardableResult
    func send(_ line: String) -> Task<Void, Never> {
        let task = Task { [lastSend] in
            await lastSend?.value
            guard fault == nil, !isLeaving else { return }
            do {
                try await connection.write(line + "\n", timeout: Self.writeTimeout)
            } catch {
                fault = fault ?? "\(error)"
                connection.close()
            }
        }
        lastSend = task
        return task
    }

    /// Disconnects the guest once it has received its lines. It receives none that are sent later.
    func leave() async {
        var received: Task<Void, Never>?
        // Other guests send while this one receives.
        while let lastSend, lastSend != received {
            await lastSend.value
            received = lastSend
        }
        guard !isLeaving else { return }
        isLeaving = true
        try? await connection.finish(timeout: .seconds(1))
        connection.close()
    }
}
