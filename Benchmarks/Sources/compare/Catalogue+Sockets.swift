extension Workload {
    private static func client(_ peer: String, _ work: String, _ numbers: Int...) -> [String] {
        ["@echo-client", work] + numbers.map { "\($0)" } + ["@echo-\(program(peer))"]
    }

    /// GLib polls all connections for each message, so it gets fewer messages.
    private static func messages(_ count: Int, _ connections: Int, _ peer: String) -> Int {
        peer == "glib" && connections > 100 ? count / 10 : count
    }

    static let echo = Workload(
        name: "echo",
        work: """
            Send back the bytes of connections and verify them: 64 bytes at a time with one or several \
            messages in flight per connection, or 64 KiB writes on one connection. Server and client \
            each have a core; processor time is the server's. `reactor` has two streams with a delegate \
            per connection.
            """,
        experiments: [
            Experiment(
                name: "one message in flight", unit: "connections",
                columns: ["cpu-ns/message*", "messages/s", "p50-us", "p99-us*", "p99.9-us"], peers: allPeers,
                sizes: [.all(1), .few(8), .both(64), .all(1000)], absences: ["foundation": foundation],
                command: { client($0, "messages", $1, 1, 64, messages($1 == 1 ? 30_000 : 60_000, $1, $0)) }
            ),
            Experiment(
                name: "64 connections", unit: "in flight",
                columns: ["cpu-ns/message*", "messages/s", "p50-us", "p99-us"],
                peers: allPeers, sizes: [.few(1), .few(2), .few(4), .both(16)],
                absences: ["foundation": foundation],
                command: { client($0, "messages", 64, $1, 64, $1 < 16 ? 60_000 : 300_000) }
            ),
            Experiment(
                name: "bulk", unit: "MiB", columns: ["cpu-s/GB*", "GB/s"], peers: allPeers,
                sizes: [.few(64), .few(128), .both(256), .few(512)], absences: ["foundation": foundation],
                command: { client($0, "bulk", $1 << 20) }
            ),
        ]
    )

    static let connections = Workload(
        name: "connections",
        work: """
            Connections that wait for their first reply while others are busy; that stay idle; that open \
            and close, 64 at a time. Memory is the server's heap and stacks; `descriptors` and `KiB` are \
            its growth.
            """,
        experiments: [
            Experiment(
                name: "first reply", unit: "busy", columns: ["p50-us*", "p99-us", "p99.9-us"],
                peers: allPeers,
                sizes: [.few(1), .few(8), .both(64), .few(256)], absences: ["foundation": foundation],
                command: { client($0, "arrive", $1, 1000) }
            ),
            Experiment(
                name: "stay", unit: "connections", columns: ["bytes/connection*", "cpu-us/connection*"],
                peers: allPeers,
                sizes: [.few(1000), .both(3000), .few(6000), .all(9000)],
                absences: [
                    "foundation": foundation,
                    "glib": "it polls all descriptors for each event: at most 3,000.",
                ],
                ends: ["glib": 3000],
                command: { client($0, "stay", $1) }
            ),
            Experiment(
                name: "come and go", unit: "connections",
                columns: ["cpu-us/connection*", "descriptors", "KiB"], peers: allPeers,
                sizes: [.few(5000), .both(10_000), .few(30_000), .all(100_000)],
                absences: ["foundation": foundation],
                command: { client($0, "churn", $1) }
            ),
        ]
    )
}
