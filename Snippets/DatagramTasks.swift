import Reactor

// Replies to each UDP datagram with its length, in a task. Try it with `nc -u localhost 7010`.
let socket = try RunLoop.main.datagrams(boundTo: .ipv6Any(port: 7010))
for try await message in socket {
    if let sender = message.datagram.sender { try await socket.send("\(message.bytes.count)\n", to: sender) }
}
