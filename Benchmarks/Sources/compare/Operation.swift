/// A small operation whose cost is counted, not timed: the difference between a long and a short run, divided by the
/// difference of their counts, which excludes the program's start-up.
struct Operation {
    /// The name in the file of thresholds.
    let name: String
    let work: String
    let peers: [String]
    let counts: (short: Int, long: Int)
    /// The number of operations per unit of the count.
    var factor = 1.0
    /// The counting tool's command replaces the word `TOOL`, or is inserted at the beginning.
    let command: @Sendable (_ peer: String, _ count: Int) -> [String]

    static let all: [Operation] = [
        Operation(
            name: "timer-add", work: "a timer added and cancelled", peers: timerPeers, counts: (2000, 6000),
            command: { ["@timers-\($0)", "a", "\($1)"] }
        ),
        Operation(
            name: "timer-fire", work: "a timer added and fired", peers: timerPeers,
            counts: (2000, 6000),
            command: { ["@timers-\($0)", "d", "\($1)"] }
        ),
        Operation(
            name: "event", work: "an event of a descriptor, one of 10 pipes active", peers: peers,
            counts: (2000, 6000),
            command: { ["@ring-\($0)", "10", "1", "\($1)"] }
        ),
        Operation(
            name: "stream", work: "an event of a stream, one of 10 pipes active",
            peers: ["raw", "nio", "reactor"],
            counts: (2000, 6000),
            command: { ["@ring-\($0)", "10", "1", "\($1)"] + ($0 == "reactor" ? ["streams"] : []) }
        ),
        Operation(
            name: "await", work: "an element of `for await`: 64 bytes of a pipe",
            peers: ["source", "delegate", "preference", "main", "reactor"], counts: (2000, 6000),
            command: { ["@await-reactor", $0 == "reactor" ? "loop" : $0, "\($1)"] }
        ),
        Operation(
            name: "post", work: "a block posted from another thread", peers: timerPeers,
            counts: (5000, 15_000),
            command: { ["@cross-\($0)", "post", "\($1)"] }
        ),
        // The client sends a tenth more messages to warm up the server.
        Operation(
            name: "message", work: "a message sent back, 8 connections", peers: peers, counts: (1000, 3000),
            factor: 1.1,
            command: { ["@echo-client", "messages", "8", "1", "64", "\($1)", "TOOL", "@echo-\($0)"] }
        ),
        Operation(
            name: "connection", work: "a connection that opens, sends a message and closes", peers: peers,
            counts: (500, 1500),
            command: { ["@echo-client", "churn", "\($1)", "TOOL", "@echo-\($0)"] }
        ),
        Operation(
            name: "idle", work: "a connection that stays idle after a message", peers: peers,
            counts: (300, 900),
            command: { ["@echo-client", "stay", "\($1)", "TOOL", "@echo-\($0)"] }
        ),
        Operation(
            name: "handshake", work: "a full TLS handshake of a client", peers: ["openssl", "reactor"],
            counts: (50, 150),
            command: { ["@tls-server", "TOOL", "@tls-\($0)", "full", "\($1)"] }
        ),
        Operation(
            name: "http", work: "a body of 10 KB by HTTP", peers: ["async-http-client", "reactor"],
            counts: (200, 600),
            command: { ["@http-\($0)", "small", "\($1)"] }
        ),
        // As long as the handler is behind, the bytes must join what is there. The server's waiting costs instructions.
        Operation(
            name: "drip", work: "a byte of an HTTP body that arrives alone", peers: ["reactor"],
            counts: (5000, 15_000),
            command: { ["@http-\($0)", "drip", "\($1)"] }
        ),
        // The factor is the number of lines per byte of the text.
        Operation(
            name: "line", work: "a line, as bytes",
            peers: ["raw", "dispatch", "foundation", "nio", "reactor"],
            counts: (1_000_000, 3_000_000), factor: 0.012_772, command: { ["@lines-\($0)", "%\($1)"] }
        ),
        Operation(
            name: "line-text", work: "a line, as a `String`", peers: ["readline", "reactor"],
            counts: (1_000_000, 3_000_000),
            factor: 0.012_772, command: { ["@lines-\($0)", "%\($1)"] + ($0 == "reactor" ? ["string"] : []) }
        ),
        // Fewer changes than the kernel queues by default.
        Operation(
            name: "folder", work: "a folder watched, moved away and back, and removed", peers: ["reactor"],
            counts: (1000, 3000), command: { ["@watch-\($0)", "\($1)", "count"] }
        ),
        Operation(
            name: "second", work: "a second of waiting", peers: timerPeers, counts: (1, 3),
            command: { [waiting($0), "\($1)"] }
        ),
    ]

    private static let peers = Workload.allPeers.filter { $0 != "control" }
    private static let timerPeers = Array(peers.dropLast(2)) + ["foundation", "nio", "reactor"]
}
