import Reactor

// A log that neither blocks the program nor cuts a record. Without room it drops the oldest ones.
let log = SendQueue(to: OutputStream(descriptor: .standardError), limit: 1 << 20, overflow: .dropOldest)
for number in 1...100_000 {
    try log.send("record \(number)\n")
}
try await log.flush(timeout: .seconds(5))
try log.send("\(log.droppedCount) records were dropped\n")
