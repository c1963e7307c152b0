// The code of the article Libraries.md; see Articles.swift.

public import Reactor

/// Asks a weather station. One task at a time asks.
public final class WeatherStation {
    private let connection: Connection

    /// Connects with the first question.
    public init(host: String, port: UInt16) {
        connection = Connection(toHost: host, port: port, options: .init(connectTimeout: .seconds(10)))
    }

    /// - Returns: nil if the station has ended the connection.
    public nonisolated(nonsending) func temperature(timeout: Duration = .seconds(5)) async throws -> Double? {
        try await connection.write("temperature\n", timeout: timeout)
        let line = try await connection.read(until: [10], limit: 100, timeout: timeout)
        return line.flatMap { Double(String(decoding: $0, as: UTF8.self)) }
    }
}

/// Calls a handler when a file has been written.
///
/// The handler is called on the run loop of the thread that creates this object, and until it is released.
public final class FileObserver {
    private let watcher: FileWatcher

    /// Watches the file at `path`, which need not exist.
    public init(
        _ path: FilePath, inModes modes: [RunLoop.Mode] = [.common], handler: @escaping () -> Void
    ) throws(IOError) {
        watcher = try FileWatcher { _, event in
            if case .closedAfterWriting = event { handler() }
        }
        try watcher.watch(path)
        for mode in modes { try RunLoop.current.add(watcher, forMode: mode) }
    }

    deinit { watcher.cancel() }
}
