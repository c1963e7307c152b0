/// Something small whose cost is counted, not timed: the difference of a long and a short run, divided by how many more
/// of it the long one does, so that the start of the program falls out.
struct Operation {
    /// As in the file of thresholds.
    let name: String
    let work: String
    let peers: [String]
    let counts: (short: Int, long: Int)
    /// How often a run of a count does it, for each of that.
    var factor = 1.0
    /// Where the word `TOOL` stands, or else at the beginning, what counts is put in.
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
            name: "post", work: "a block posted from another thread", peers: timerPeers,
            counts: (5000, 15_000),
            command: { ["@cross-\($0)", "post", "\($1)"] }
        ),
        // The client warms the server up with a tenth of the messages.
        Operation(
            name: "message", work: "a message sent back, 8 connections", peers: peers, counts: (1000, 3000),
            factor: 1.1,
            command: { ["@echo-client", "messages", "8", "1", "64", "\($1)", "TOOL", "@echo-\($0)"] }
        ),
        // The text has so many lines for each of its bytes.
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
        Operation(
            name: "second", work: "a second of waiting", peers: timerPeers, counts: (1, 3),
            command: { [waiting($0), "\($1)"] }
        ),
    ]

    private static let peers = Workload.allPeers.filter { $0 != "control" }
    private static let timerPeers = Array(peers.dropLast(2)) + ["foundation", "nio", "reactor"]
}
