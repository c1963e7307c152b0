import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport

/// A client and a server whose bytes pass through the test, up to a limit on one side.
struct RelayedPair {
    /// What happens at the limit.
    enum Ending {
        /// Both connections end.
        case cut
        /// No further byte of that side passes.
        case stall
    }

    let pair: TLSPair
    /// At the other ends of the client's connection and of the server's.
    private let peers: [SocketPeer]

    init(_ client: TLSSettings, _ server: TLSSettings, connectTimeout: Duration? = nil) throws {
        let (first, second) = (try socketPair(), try socketPair())
        pair = TLSPair(try TLSEnd(first.0), try TLSEnd(second.0))
        peers = [SocketPeer(first.1), SocketPeer(second.1)]
        for (end, settings) in [(pair.client, client), (pair.server, server)] {
            try end.input.startTLS(settings)
            if let connectTimeout { end.input.connectTimeout = connectTimeout }
            end.open()
        }
    }

    /// Passes bytes on until both connections have ended, or `isDone` is true.
    ///
    /// - Parameter limit: How many bytes of one side pass.
    /// - Returns: How many bytes of that side have passed.
    @discardableResult
    func run(
        limit: Int = .max, ofServer: Bool, _ ending: Ending = .cut, until isDone: () -> Bool = { false }
    ) -> Int {
        let limited = ofServer ? 1 : 0
        var left = [Int.max, Int.max]
        left[limited] = limit
        while left != [0, 0], ending == .stall || left[limited] > 0, !isDone() {
            var states = (0...1).map { index in
                pollfd(fd: left[index] > 0 ? peers[index].number : -1, events: Int16(POLLIN), revents: 0)
            }
            // A stalled relay also waits for streams, which nothing reports here.
            poll(&states, 2, ending == .cut ? -1 : 5)
            for index in 0...1 where states[index].revents != 0 {
                let bytes = peers[index].receiveNow(upTo: min(left[index], 65_536))
                peers[1 - index].send(bytes)
                left[index] = bytes.isEmpty ? 0 : left[index] - bytes.count
                if bytes.isEmpty { peers[1 - index].shutDown() }
            }
        }
        if ending == .cut { for peer in peers { shutdown(peer.number, CInt(SHUT_RDWR)) } }
        return limit - left[limited]
    }
}
