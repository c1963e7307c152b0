extension Workload {
    static let send = Workload(
        name: "send",
        work: """
            Send a file (in the page cache) over TCP on loopback, to a thread that discards the bytes in the \
            kernel. The baseline is sendfile(2) on a blocking socket. `copy` is a stream's delegate that reads \
            64 KiB and writes them, `file` one that writes the file's contents.
            """,
        experiments: [
            Experiment(
                name: "a file", unit: "MiB", columns: ["cpu-ms/GB*", "MB/s*", "calls"],
                peers: ["raw", "copy", "file"], sizes: [.few(256), .few(512), .both(1024), .few(4096)],
                command: { ["@send-reactor", $0, "\($1)"] })
        ]
    )

    static let lines = Workload(
        name: "lines",
        work: """
            Deliver each line of a text (in the page cache) as bytes or as a `String`. The baseline is \
            `read` and `memchr` in C; the peers read 64 KiB at a time with their own API and call the \
            same `memchr`, on their thread. `reactor` delivers each line on a queue while a 10 ms timer \
            fires on the loop: `tick-late-us` is the p99 of its lateness. `line-reader` is the example \
            program, from start to exit: it also runs the timer, validates each line as UTF-8 and \
            reports its peak heap.
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
                peers: ["readLine", "reactor", "tasks", "line-reader"],
                sizes: [.few(64), .both(128), .few(256), .all(512)],
                command: { peer, size in
                    switch peer {
                    case "line-reader": example(size) + ["--strings"]
                    case "reactor": ["@lines-reactor", text(size), "string"]
                    case "tasks": ["@lines-reactor", text(size), "tasks"]
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

    static let http = Workload(
        name: "http",
        work: """
            Download a body from nginx on loopback, in plain and over TLS; download bodies of 10 KB over 8 \
            connections. The baseline is the program `curl`. `reactor` passes the bodies to a closure \
            while a 5 ms timer fires on the same loop: `tick-late-us` is the p99 of its lateness, `pass-KiB` \
            the most bytes that a pass of the loop has received, and `pass-us` the p99 of a pass's \
            processor time.
            """,
        experiments: [
            Experiment(
                name: "plain", unit: "MiB", columns: body,
                peers: ["curl", "foundation", "async-http-client", "reactor"],
                sizes: [.few(64), .both(256), .all(1024)], command: { download($0, "body", $1) }),
            Experiment(
                name: "TLS", unit: "MiB", columns: body, peers: ["curl", "async-http-client", "reactor"],
                sizes: [.few(64), .both(256), .all(1024)],
                absences: ["foundation": "it does not accept a certificate of one's own."],
                command: { download($0, "secure", $1) }),
            Experiment(
                name: "small", unit: "bodies",
                columns: ["cpu-us/body*", "bodies/s", "peak-KiB", "tick-late-us", "pass-KiB", "pass-us"],
                peers: ["curl", "foundation", "async-http-client", "reactor"],
                sizes: [.both(1000), .few(3000), .all(10_000)],
                command: { download($0, "small", $1) }),
        ]
    )

    private static let body: [Column] = [
        "cpu-s/GB*", "GB/s", "peak-KiB", "tick-late-us", "pass-KiB", "pass-us",
    ]

    private static func download(_ peer: String, _ kind: String, _ count: Int) -> [String] {
        let arguments = [kind, "\(count)"]
        return peer == "curl" ? ["@http-reactor"] + arguments + ["curl"] : ["@http-\(peer)"] + arguments
    }

    static let tls = Workload(
        name: "tls",
        work: """
            A client of a TLS server on loopback, both with OpenSSL 3: receive and send, make handshakes \
            one after another, and keep connections that are idle; then a server of such clients. The baseline is `SSL_set_fd` and \
            `poll`. `context` is what the first connection costs that trusts the system's certificates.
            """,
        experiments: [
            Experiment(
                name: "get", unit: "MiB", columns: ["cpu-s/GB*", "GB/s"], peers: ["openssl", "reactor"],
                sizes: [.few(64), .both(256), .all(1024)], command: { tls($0, "get", $1) }),
            Experiment(
                name: "put", unit: "MiB", columns: ["cpu-s/GB*", "GB/s"], peers: ["openssl", "reactor"],
                sizes: [.few(64), .both(256), .all(1024)], command: { tls($0, "put", $1) }),
            Experiment(
                name: "full handshakes", unit: "connections",
                columns: ["cpu-us/handshake*", "handshakes/s"], peers: ["openssl", "reactor"],
                sizes: [.few(100), .both(300), .all(1000)], command: { tls($0, "full", $1) }),
            Experiment(
                name: "resumed handshakes", unit: "connections",
                columns: ["cpu-us/handshake*", "handshakes/s"], peers: ["openssl", "reactor"],
                sizes: [.few(100), .both(300), .all(1000)], command: { tls($0, "resumed", $1) }),
            Experiment(
                name: "idle connections", unit: "connections", columns: ["KiB/connection*"],
                peers: ["openssl", "reactor"], sizes: [.few(100), .both(300), .all(1000)],
                command: { tls($0, "idle", $1) }),
            Experiment(
                name: "full handshakes of a server", unit: "connections",
                columns: ["cpu-us/handshake*", "handshakes/s"], peers: ["openssl", "reactor"],
                sizes: [.few(100), .both(300), .all(1000)], command: { tlsServer($0, "full", $1) }),
            Experiment(
                name: "resumed handshakes of a server", unit: "connections",
                columns: ["cpu-us/handshake*", "handshakes/s"], peers: ["openssl", "reactor"],
                sizes: [.few(100), .both(300), .all(1000)], command: { tlsServer($0, "resumed", $1) }),
            Experiment(
                name: "idle connections of a server", unit: "connections", columns: ["KiB/connection*"],
                peers: ["openssl", "reactor"], sizes: [.few(100), .both(300), .all(1000)],
                command: { tlsServer($0, "idle", $1) }),
            Experiment(
                name: "context", unit: "contexts", columns: ["cpu-ms*"], peers: ["openssl", "reactor"],
                sizes: [.both(1)], command: { tls($0, "context", $1) }),
        ]
    )

    private static func tls(_ peer: String, _ kind: String, _ count: Int) -> [String] {
        ["@tls-server", "@tls-\(peer)", kind, "\(count)"]
    }

    private static func tlsServer(_ peer: String, _ kind: String, _ count: Int) -> [String] {
        ["@tls-clients", "@tls-\(peer)", kind, "\(count)"]
    }

    static let modes = Workload(
        name: "modes",
        work: """
            Enter another mode from a callback and leave it, with items in the default mode: timers, and \
            for `reactor` also as many signalled sources and descriptors. On one core. The other peers \
            have no modes.
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

    static let embed = Workload(
        name: "embed",
        work: """
            One thread posts a block to the sleeping main loop and waits for it: `native` to GLib's, `hosted` to this \
            library's in GLib's, `main-actor` there as a task, `guest` to GLib's in this library's, and `reactor` to this \
            library's alone. `cpu-us/hop` is the main thread's. `wake-ups` are the main thread's while nothing happens.
            """,
        experiments: [
            Experiment(
                name: "a post", unit: "posts", columns: ["p50-us*", "p99-us*", "cpu-us/hop*"],
                peers: ["native", "hosted", "main-actor", "guest", "reactor"], sizes: [.both(3000)],
                command: { ["@embed-reactor", $0, "hops", "\($1)"] }
            ),
            Experiment(
                name: "nothing", unit: "s", columns: ["wake-ups"],
                peers: ["native", "hosted", "guest", "reactor"], sizes: [.both(10)],
                command: { ["@embed-reactor", $0, "idle", "\($1)"] }
            ),
        ]
    )

    static let watch = Workload(
        name: "watch",
        work: """
            Watch a tree of folders, move it away and back, and remove it in another thread, while a timer \
            fires every millisecond. The times are those of the loop's thread for one folder. `busy-ms` is the \
            longest processor time between two firings, and `late-ms` the longest time, which on a busy \
            machine includes that of other programs. That the kernel watches a folder with 100,000 names is \
            one call, which takes it some 20 ms.
            """,
        experiments: [("a tree of 100 folders each", "tree"), ("all in one folder", "wide")].map {
            name, shape in
            Experiment(
                name: name, unit: "folders",
                columns: [
                    "cpu-ns/watch*", "cpu-ns/leave*", "cpu-ns/join*", "cpu-ns/remove*", "busy-ms", "late-ms",
                ],
                peers: ["reactor"], sizes: [.both(1000), .few(4000), .few(16_000), .both(100_000)],
                command: { ["@watch-\($0)", "\($1)", shape] }
            )
        }
    )

    static let idle = Workload(
        name: "idle",
        work: """
            The smallest program: start, wait for a timer, and exit. `wake-ups` are the context switches \
            of one run, including its start; the cost of a second of waiting is counted below.
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

/// The program of `peer` that waits for a given number of seconds. `idle-reactor` takes no arguments, so that it is as
/// small as possible.
func waiting(_ peer: String) -> String { peer == "reactor" ? "@still-reactor" : "@idle-\(peer)" }
