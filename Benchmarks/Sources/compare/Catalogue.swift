extension Workload {
    /// All workloads, in the order of the page.
    static let all: [Workload] = [
        timers, ring, stream, cross, tasks, echo, connections, send, lines, http, tls, modes, watch, embed,
        idle,
    ]

    /// The baseline, the control (the baseline again, whose ratio shows the noise), and the peers in C and C++.
    static let cPeers = ["raw", "control", "libevent", "libuv", "libev", "glib", "asio"]
    static let allPeers = cPeers + ["dispatch", "nio", "reactor"]

    static let foundation =
        "on Linux its run loop does not support descriptors and never calls a stream's delegate."

    static let timers = Workload(
        name: "timers",
        work: """
            Add one-shot timers due in 10 to 60 s and cancel them; let timers fire that are all due at \
            once, or within a window of 100 ms; run timers of 10 ms for 2 s. Lateness is in µs; `early` \
            counts firings before the due time. libuv and GLib count whole milliseconds and therefore \
            wake up less often; Dispatch cancels asynchronously.
            """,
        experiments: [
            Experiment(
                name: "add and cancel", unit: "timers",
                columns: ["cpu-ns/add*", "cpu-ns/cancel*", "bytes/timer"],
                peers: cPeers + ["dispatch", "foundation", "nio", "reactor"],
                sizes: [.both(1000), .all(10_000), .all(100_000), .all(1_000_000), .quick(100_000)],
                absences: [
                    "foundation": "cancelling takes linear time: at most 10,000.",
                    "nio": "cancelling takes linear time: at most 100,000.",
                ],
                ends: ["foundation": 10_000, "nio": 100_000],
                command: { ["@timers-\(program($0))", "a", "\($1)"] }
            ),
            Experiment(
                name: "all due at once, added and fired", unit: "timers", columns: ["cpu-ns/timer*"],
                peers: cPeers + ["dispatch", "foundation", "nio", "reactor"],
                sizes: [.few(1000), .few(10_000), .both(100_000), .few(1_000_000)],
                command: { ["@timers-\(program($0))", "d", "\($1)"] }
            ),
            Experiment(
                name: "fire within 100 ms", unit: "timers",
                columns: ["cpu-ns/fire*", "p50-us", "p99-us", "max-us", "early"],
                peers: cPeers + ["dispatch", "foundation", "nio", "reactor"],
                sizes: [.few(1000), .few(10_000), .few(30_000), .both(100_000)],
                command: { ["@timers-\(program($0))", "b", "\($1)"] }
            ),
            Experiment(
                name: "every 10 ms", unit: "timers",
                columns: ["cpu-ns/fire*", "fired-%", "p50-us", "p99-us", "early"],
                peers: cPeers + ["dispatch", "foundation", "nio", "reactor"],
                sizes: [.few(100), .few(1000), .few(3000), .both(10_000)],
                command: { ["@timers-\(program($0))", "c", "\($1)", "2"] }
            ),
        ]
    )

    static let ring = Workload(
        name: "ring",
        work: """
            Pipes, some of which hold a byte: each callback reads one byte and writes one to the next \
            pipe. On one core. Here `reactor` uses descriptor sources; Asio and SwiftNIO read the bytes \
            themselves.
            """,
        experiments: [
            Experiment(
                name: "one pipe active", unit: "pipes", columns: ["cpu-ns/event*", "ns/event", "ns/watch"],
                peers: allPeers,
                sizes: [.few(10), .few(100), .both(1000), .few(9000)], absences: ["foundation": foundation],
                command: {
                    ["taskset", "-c", "0", "@ring-\(program($0))", "\($1)", "1", "\(events(300_000, $0))"]
                }
            ),
            Experiment(
                name: "1,000 pipes", unit: "active", columns: ["cpu-ns/event*", "ns/event"], peers: allPeers,
                sizes: [.few(1), .few(10), .both(100), .few(1000)], absences: ["foundation": foundation],
                command: {
                    ["taskset", "-c", "0", "@ring-\(program($0))", "1000", "\($1)", "\(events(300_000, $0))"]
                }
            ),
        ]
    )

    static let stream = Workload(
        name: "stream",
        work: """
            The same work, where `reactor` reads each pipe as a stream with a delegate, and `source` \
            uses this library's descriptor sources. A tenth of the pipes is active. On one core.
            """,
        experiments: [
            Experiment(
                name: "a delegate reads a pipe", unit: "pipes",
                columns: ["cpu-ns/event*", "ns/event", "ns/watch"],
                peers: ["raw", "control", "libevent", "nio", "source", "reactor"],
                sizes: [.both(1), .few(10), .few(100), .both(1000)], absences: ["foundation": foundation],
                command: { peer, pipes in
                    let program = peer == "source" ? "reactor" : program(peer)
                    let numbers = ["\(pipes)", "\((pipes + 9) / 10)", "\(events(300_000, peer))"]
                    return ["taskset", "-c", "0", "@ring-\(program)"] + numbers
                        + (peer == "reactor" ? ["streams"] : [])
                }
            )
        ]
    )

    static let cross = Workload(
        name: "cross",
        work: """
            One thread posts blocks to another thread's loop; two loops pass a block back and forth. On \
            one core. Foundation's `perform` does not wake the loop on Linux, so `CFRunLoopWakeUp` is \
            called.
            """,
        experiments: [
            Experiment(
                name: "post", unit: "posts", columns: ["cpu-ns/post*", "ns/post", "producer-ns"],
                peers: cPeers + ["dispatch", "foundation", "nio", "reactor"],
                sizes: [.few(10_000), .few(30_000), .few(100_000), .both(300_000), .few(1_000_000)],
                command: { ["taskset", "-c", "0", "@cross-\(program($0))", "post", "\($1)"] }
            ),
            Experiment(
                name: "there and back", unit: "round trips", columns: ["cpu-ns/trip*", "ns/trip"],
                peers: cPeers + ["dispatch", "foundation", "nio", "reactor"],
                sizes: [.few(1000), .quick(10_000), .few(10_000), .all(30_000), .few(100_000)],
                command: { ["taskset", "-c", "0", "@cross-\(program($0))", "ping", "\($1)"] }
            ),
        ]
    )
}

/// The peer whose program is run: the control is the baseline again.
func program(_ peer: String) -> String { peer == "control" ? "raw" : peer }

/// Fewer events for the slowest peers.
private func events(_ count: Int, _ peer: String) -> Int {
    switch peer {
    case "glib": count / 20
    case "dispatch": count / 5
    default: count
    }
}
