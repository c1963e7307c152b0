import Reactor

// Replies to each UDP datagram with its length. Try it with `nc -u localhost 7010`.
let socket = try DatagramSocket(boundTo: .ipv6Any(port: 7010)) { socket, bytes, metadata in
    guard let sender = metadata.sender else { return }
    do {
        let isSent = try socket.send("\(metadata.byteCount)\n", to: sender)
        if !isSent { print("dropped a reply to \(sender): the send buffer is full") }
    } catch {
        print("cannot reply to \(sender): \(error)")
    }
} events: { _, event in
    if case .errorOccurred(let error) = event { print(error) }
}
try RunLoop.current.add(socket, forMode: .default)
RunLoop.current.run(in: .default)
