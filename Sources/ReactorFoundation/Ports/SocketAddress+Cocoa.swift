import Foundation
import Reactor

extension SocketAddress {
    /// Reads a `sockaddr` in this system's form.
    init?(sockaddr data: Data) {
        let bytes = Array(data)
        unsafe self.init(bytes.span.bytes)
    }

    /// Looks `host` up on the calling thread's loop, in a mode in which nothing else is served; nil if it has no
    /// address. One of IPv4 is preferred.
    init?(lookingUp host: String, _ port: UInt16) {
        if let address = SocketAddress(host, port: port) {
            self = address
            return
        }
        let mode = RunLoop.Mode("ReactorFoundation.SocketPort")
        var answer: Resolver.Answer?
        Resolver.resolve(host: host, port: port, inModes: [mode]) { answer = $0 }
        while answer == nil, RunLoop.current.run(mode: mode, before: Deadline.distantFuture) {}
        guard case .success(let addresses) = answer,
            let address = addresses.first(where: { $0.ipv4 != nil }) ?? addresses.first
        else { return nil }
        self = address
    }
}
