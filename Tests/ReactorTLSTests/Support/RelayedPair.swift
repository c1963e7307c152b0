import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport

/// A client and a server whose bytes pass through the test, up to a limit on one side.
struct RelayedPair {
    let pair: TLSPair
    /// At the other ends of the client's connection and of the server's.
    private let peers: [SocketPeer]

    init(_ client: TLSSettings, _ server: TLSSettings) throws {
        let (first, second) = (try socketPair(), try socketPair())
        pair = TLSPair(try TLSEnd(first.0, client), try TLSEnd(second.0, server))
        peers = [SocketPeer(first.1), SocketPeer(second.1)]
    }

    /// Passes bytes on until both connections have ended, or until `limit` bytes of one side have passed, where it ends them.
    ///
    /// - Returns: How many bytes of that side have passed.
    @discardableResult
    func run(limit: Int = .max, ofServer: Bool) -> Int {
        let limited = ofServer ? 1 : 0
        var (passed, hasEnded) = ([0, 0], [false, false])
        while hasEnded.contains(false), passed[limited] < limit {
            var states = (0...1).map { index in
                pollfd(fd: hasEnded[index] ? -1 : peers[index].number, events: Int16(POLLIN), revents: 0)
            }
            poll(&states, 2, -1)
            for index in 0...1 where states[index].revents != 0 {
                let room = index == limited ? limit - passed[index] : .max
                let bytes = peers[index].receiveNow(upTo: min(room, 65_536))
                peers[1 - index].send(bytes)
                passed[index] += bytes.count
                hasEnded[index] = bytes.isEmpty
                if bytes.isEmpty { peers[1 - index].shutDown() }
            }
        }
        for peer in peers { shutdown(peer.number, CInt(SHUT_RDWR)) }
        return passed[limited]
    }
}
