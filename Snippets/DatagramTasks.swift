import Reactor

// Replies to each UDP datagram with its length, in a task. Try it with `nc -u localhost 7010`.
let socket = try RunLoop.main.datagrams(boundTo: .ipv6Any(port: 7010))
for try await datagram in socket {
    if let sender = datagram.metadata.sender {
        try await socket.send("\(datagram.bytes.count)\n", to: sender)
    }
}
