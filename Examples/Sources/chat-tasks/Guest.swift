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
    private let sends: SendQueue
    private var isLeaving = false

    init(_ connection: Connection, name: String) {
        (self.connection, self.name) = (connection, name)
        sends = SendQueue(to: connection)
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

    /// Sends a line after those before it.
    func send(_ line: String) {
        guard fault == nil, !isLeaving else { return }
        do { try sends.send(line + "\n") } catch { disconnect(because: error) }
    }

    /// Waits until the guest has taken its lines. Who awaits this reads no faster than the guest does.
    func takeLines() async {
        guard fault == nil, !isLeaving else { return }
        do { try await sends.flush(timeout: Self.writeTimeout) } catch { disconnect(because: error) }
    }

    private func disconnect(because error: any Error) {
        fault = fault ?? "\(error)"
        connection.close()
    }

    /// Disconnects the guest once it has received its lines. It receives none that are sent later.
    func leave() async {
        await takeLines()
        guard !isLeaving else { return }
        isLeaving = true
        try? await sends.finish(timeout: .seconds(1))
        connection.close()
    }
}
