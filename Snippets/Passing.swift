import Reactor
import SystemPackage

// A service that opens files for its clients: it gets paths, and sends open descriptors back.
let address = try SocketAddress(unixAbstractName: "opener".utf8)
var options = DatagramSocket.Options()
options.receivesCredentials = true
let service = try DatagramSocket(boundTo: address, options: options) {
    socket, bytes, metadata in
    guard let client = metadata.sender, let process = metadata.credentials else { return }
    let path = String(decoding: bytes.withUnsafeBytes(Array.init), as: UTF8.self)
    print("process \(process.processIdentifier) of user \(process.userIdentifier) wants \(path)")
    guard let file = try? FileDescriptor.open(path, .readOnly) else { return }
    _ = try? socket.send(bytes.withUnsafeBytes(Array.init), to: client, descriptors: [file])
    try? file.close()
} events: { _, event in
    print(event)
}
options.receivesCredentials = false
options.descriptorLimit = 1
let client = try DatagramSocket(
    connectedTo: address, boundTo: .unixUnnamed, options: options
) { _, _, metadata in
    guard let file = metadata.descriptors.first else { return }
    print("got descriptor \(file.rawValue)")
    try? file.close()
    RunLoop.current.stop()
} events: { _, event in
    print(event)
}
for socket in [service, client] { try RunLoop.current.add(socket, forMode: .default) }
_ = try client.send("/etc/hostname")
RunLoop.current.run(in: .default)
