import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport

/// Pairs of a client and a server whose bytes pass through the test, up to a limit on one side.
final class RelayedPairs {
    /// What happens to a pair at its limit.
    enum Ending {
        /// Both connections end.
        case cut
        /// No further byte of that side passes.
        case stall
    }

    private struct Direction {
        let from: SocketPeer
        let to: SocketPeer
        var limit: Int
    }

    private(set) var pairs: [(client: TLSPair.End, server: TLSPair.End)] = []
    /// The number of bytes that have passed from the servers and from the clients.
    private(set) var counts = (servers: 0, clients: 0)
    private let ending: Ending
    private var directions: [Direction] = []

    /// - Parameters:
    ///   - limits: The number of bytes that may pass from the server or from the client, one for each pair.
    init(
        _ client: TLSSettings, _ server: TLSSettings, limits: some Sequence<Int>, ofServer: Bool,
        _ ending: Ending = .cut, configure: (Stream) -> Void = { _ in }
    ) throws {
        self.ending = ending
        for limit in limits {
            let (first, second) = (try socketPair(), try socketPair())
            let pair = (client: TLSPair.end(first.0), server: TLSPair.end(second.0))
            let (left, right) = (SocketPeer(first.1), SocketPeer(second.1))
            try pair.client.input.startTLS(client)
            try pair.server.input.startTLS(server)
            for end in [pair.client, pair.server] { configure(end.input) }
            for stream in pair.client.streams + pair.server.streams { stream.open() }
            directions.append(Direction(from: right, to: left, limit: ofServer ? limit : .max))
            directions.append(Direction(from: left, to: right, limit: ofServer ? .max : limit))
            pairs.append(pair)
        }
    }

    /// Passes bytes on until all connections have ended, or `isDone` is true.
    func run(until isDone: () -> Bool = { false }) {
        for index in directions.indices { finish(index) }
        while !isDone() {
            var states = directions.map { direction in
                pollfd(
                    fd: direction.limit > 0 ? direction.from.number : -1, events: Int16(POLLIN), revents: 0)
            }
            if states.allSatisfy({ $0.fd < 0 }), ending == .cut { return }
            // A stalled relay also waits for streams, which nothing reports here.
            poll(&states, nfds_t(states.count), ending == .cut ? -1 : 5)
            for index in states.indices where states[index].revents != 0 && directions[index].limit > 0 {
                pass(index)
            }
        }
    }

    private func pass(_ index: Int) {
        let direction = directions[index]
        let bytes = direction.from.receiveNow(upTo: min(direction.limit, 65_536))
        if index % 2 == 0 { counts.servers += bytes.count } else { counts.clients += bytes.count }
        direction.to.send(bytes)
        directions[index].limit -= bytes.count
        if bytes.isEmpty {
            directions[index].limit = 0
            shutdown(direction.to.number, CInt(SHUT_WR))
        } else {
            finish(index)
        }
    }

    /// Ends the pair of a direction whose limit is reached.
    private func finish(_ index: Int) {
        let direction = directions[index]
        guard direction.limit == 0, ending == .cut else { return }
        for peer in [direction.from, direction.to] { shutdown(peer.number, CInt(SHUT_RDWR)) }
        directions[index ^ 1].limit = 0
    }
}
