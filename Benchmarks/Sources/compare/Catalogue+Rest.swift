extension Workload {
    static let lines = Workload(
        name: "lines",
        work: """
            Deliver each line of a text (page cache warm), as bytes or as a `String`. The limit is `read` and `memchr` in \
            C; the peers read 64 KiB at a time in their own way and do the same `memchr`, on their thread. `reactor` \
            delivers each line on a queue while a 10 ms timer ticks on the loop: `tick-late-us` is its p99.
            """,
        experiments: [
            Experiment(
                name: "bytes", unit: "MiB", columns: ["cpu-s/GB*", "GB/s*", "tick-late-us"],
                peers: ["raw", "control", "dispatch", "foundation", "nio", "reactor"],
                sizes: [.few(64), .both(128), .few(256), .all(1024)],
                command: { ["@lines-\(program($0))", "%\($1 << 20)"] }
            ),
            Experiment(
                name: "a String for each", unit: "MiB", columns: ["cpu-s/GB*", "GB/s*", "tick-late-us"],
                peers: ["readLine", "reactor"],
                sizes: [.few(64), .both(128), .few(256), .all(512)],
                command: {
                    ["@lines-\($0.lowercased())", "%\($1 << 20)"] + ($0 == "reactor" ? ["string"] : [])
                }
            ),
        ]
    )

    static let modes = Workload(
        name: "modes",
        work: """
            Enter another mode from a callout and leave it, with items in the default mode: timers, and for `reactor` as \
            many signalled sources and descriptors. On one core. The other peers have no modes.
            """,
        experiments: [
            Experiment(
                name: "enter and leave", unit: "items of a kind",
                columns: ["cpu-ns/entry*", "ns/entry"],
                peers: ["reactor", "foundation"], sizes: [.both(10), .few(100), .few(1000), .both(9000)],
                command: {
                    ["taskset", "-c", "0", "@modes-\($0)", "\($1)", $0 == "reactor" ? "100000" : "10000"]
                }
            )
        ]
    )

    static let idle = Workload(
        name: "idle",
        work: """
            The smallest program: start, wait with a timer, and end. `wake-ups` are the context switches of one run, its \
            start included; what a second of waiting costs is among the costs below.
            """,
        experiments: [
            Experiment(
                name: "start-up", unit: "ms of waiting",
                columns: ["wall-ms", "p90-ms", "cpu-ms*", "peak-KiB*", "wake-ups"],
                peers: cPeers.filter { $0 != "control" } + ["dispatch", "foundation", "nio", "reactor"],
                sizes: [.both(10)],
                command: { peer, _ in ["@start", "10", "@idle-\(peer)"] }
            ),
            Experiment(
                name: "waiting", unit: "s of waiting",
                columns: ["wall-ms", "p90-ms", "cpu-ms*", "peak-KiB", "wake-ups"],
                peers: cPeers.filter { $0 != "control" } + ["dispatch", "foundation", "nio", "reactor"],
                sizes: [.all(2)],
                command: { ["@start", "1", waiting($0), "\($1)"] }
            ),
        ]
    )
}

/// The program of `peer` that waits for as many seconds as it is told; ours that starts up does without arguments.
func waiting(_ peer: String) -> String { peer == "reactor" ? "@still-reactor" : "@idle-\(peer)" }
