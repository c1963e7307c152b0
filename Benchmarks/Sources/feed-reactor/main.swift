// feed-reactor clients CLIENTS HZ SECONDS KIND  Sends 64 bytes to all clients, HZ times a second: processor-ms/s dropped
// feed-reactor sends COUNT 0 0 KIND             Sends COUNT messages of 64 bytes to one socket, which is read: ns/message
//
// KIND: send (`Connection.send`), queue (`SendQueue.send`), key (`SendQueue.send(_:replacing:)`), write (`await
// Connection.write`). The clients connect to port 7019, and discard what they receive: see Peers/feed-clients.py.

import Glibc
import Measuring
import Reactor
import SystemPackage

let kind = CommandLine.arguments[5]
let message = [UInt8](repeating: 120, count: 64)

struct Receiver {
    let connection: Connection
    let queue: SendQueue

    init(_ connection: Connection) {
        self.connection = connection
        queue = SendQueue(to: connection, limit: 65_536, overflow: .dropOldest)
    }

    @inline(__always)
    func send() async throws {
        switch kind {
        case "send": try? connection.send(message)
        case "queue": try queue.send(message)
        case "key": try queue.send(message, replacing: 1)
        default: try await connection.write(message)
        }
    }
}

func sendAll(_ count: Int) async throws {
    var ends: [CInt] = [0, 0]
    socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends)
    let connection = Connection(descriptor: FileDescriptor(rawValue: ends[0]))
    try await connection.open()
    let receiver = Receiver(connection)
    var buffer = [UInt8](repeating: 0, count: 65_536)
    let begin = processorTime()
    for index in 1...count {
        try await receiver.send()
        if index % 100 == 0 { _ = read(ends[1], &buffer, buffer.count) }
    }
    report([fixed(Double(processorTime() - begin) / Double(count))])
}

let (count, rate, seconds) = numbers(from: 2)
guard CommandLine.arguments[1] == "clients" else {
    try await sendAll(count)
    exit(0)
}
allowDescriptors(2 * count + 100)
var receivers: [Receiver] = []
for try await connection in try RunLoop.main.connections(
    at: .ipv4Loopback(port: 7019), acceptErrors: { print($0) })
{
    try await connection.open()
    receivers.append(Receiver(connection))
    if receivers.count == count { break }
}
let begin = (wall: now(), processor: processorTime())
var ticks = 0
for await _ in RunLoop.main.ticks(every: .seconds(1) / rate) {
    for receiver in receivers { try await receiver.send() }
    ticks += 1
    if ticks == rate * seconds { break }
}
let wall = now() - begin.wall
report([
    fixed(Double(processorTime() - begin.processor) * 1000 / Double(wall)),
    fixed(Double(ticks) * 1e9 / Double(wall)), "\(receivers.reduce(0) { $0 + $1.queue.droppedCount })",
])
