extension Workload {
    static let tasks = Workload(
        name: "tasks",
        work: """
            Actors on the executors of two loops, each on its own thread: an actor of one calls an actor of \
            the other and returns; child tasks of one send a message to each of 1,000 actors of the other. \
            Dispatch has serial queues in place of loops. And elements of 64 bytes of a pipe, each written \
            when the one before was read: `delegate` is a stream's, `source` a descriptor source's handler; \
            the others `for await`: `reactor` in an actor of the loop, `main` on the main actor, \
            `preference` in a task that prefers the loop; `chunks` iterates over a stream's chunks. On one core. \
            And chunks of a pipe that another thread fills, 256 MiB on two cores.
            """,
        experiments: [
            Experiment(
                name: "to another loop's actor and back", unit: "round trips",
                columns: ["cpu-ns/trip*", "ns/trip"], peers: ["dispatch", "nio", "reactor"],
                sizes: [.few(3000), .both(10_000), .few(30_000), .few(100_000)],
                command: { ["taskset", "-c", "0", "@tasks-\($0)", "hop", "\($1)"] }
            ),
            Experiment(
                name: "a message to each of 1,000 actors", unit: "messages",
                columns: ["cpu-ns/message*", "ns/message"], peers: ["dispatch", "nio", "reactor"],
                sizes: [.few(10_000), .both(100_000), .few(300_000), .few(1_000_000)],
                command: { ["taskset", "-c", "0", "@tasks-\($0)", "actors", "\($1)"] }
            ),
            Experiment(
                name: "an element of a pipe", unit: "elements",
                columns: ["cpu-ns/element*", "ns/element"],
                peers: ["delegate", "source", "preference", "main", "chunks", "reactor"],
                sizes: [.few(10_000), .both(100_000), .few(300_000), .few(1_000_000)],
                command: { peer, count in
                    ["taskset", "-c", "0", "@await-reactor", peer == "reactor" ? "loop" : peer, "\(count)"]
                }
            ),
            Experiment(
                name: "chunks of a pipe", unit: "bytes at most",
                columns: ["cpu-ms/GB*", "MB/s*", "reads"], peers: ["delegate", "chunks"],
                sizes: [.both(4096), .few(16_384), .both(65_536)],
                command: { ["@bulk-reactor", $0, "\($1)", "256"] }
            ),
        ]
    )
}
