extension Workload {
    static let lines = Workload(
        name: "lines",
        work: """
            Deliver each line of a text (page cache warm), as bytes or as a `String`. The limit is `read` and `memchr` in \
            C; the peers read 64 KiB at a time in their own way and do the same `memchr`, on their thread. `reactor` \
            delivers each line on a queue while a 10 ms timer ticks on the loop: `tick-late-us` is its p99. `line-reader` \
            is the example, from its start to its end: it ticks too, checks that each line is UTF-8, and tells its peak \
            heap.
            """,
        experiments: [
            Experiment(
                name: "bytes", unit: "MiB",
                columns: ["cpu-s/GB*", "GB/s*", "tick-late-us", "heap-KB"],
                peers: ["raw", "control", "dispatch", "foundation", "nio", "reactor", "line-reader"],
                sizes: [.few(64), .both(128), .few(256), .all(1024)],
                command: { peer, size in
                    peer == "line-reader" ? example(size) : ["@lines-\(program(peer))", text(size)]
                }
            ),
            Experiment(
                name: "a String for each", unit: "MiB",
                columns: ["cpu-s/GB*", "GB/s*", "tick-late-us", "heap-KB"],
                peers: ["readLine", "reactor", "line-reader"],
                sizes: [.few(64), .both(128), .few(256), .all(512)],
                command: { peer, size in
                    switch peer {
                    case "line-reader": example(size) + ["--strings"]
                    case "reactor": ["@lines-reactor", text(size), "string"]
                    default: ["@lines-readline", text(size)]
                    }
                }
            ),
        ]
    )

    private static func text(_ mebibytes: Int) -> String { "%\(mebibytes << 20)" }

    private static func example(_ mebibytes: Int) -> [String] {
        ["@lines-program", "@line-reader", text(mebibytes)]
    }

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
