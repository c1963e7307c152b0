import Reactor

/// The messages that have come in at a local port, and wait for a loop to deliver them.
final class PortMail: Sendable {
    /// A message, and who it is really from.
    struct Arrival {
        let frame: PortFrame
        let peer: SocketAddress
    }

    private struct State {
        var arrivals: [Arrival] = []
        /// Where in `arrivals` the first is that waits.
        var first = 0
        var byteCount = 0
        var isOpen = true
        var bell: (@Sendable () -> Void)?

        mutating func take() -> Arrival? {
            guard first < arrivals.count else { return nil }
            let arrival = arrivals[first]
            first += 1
            byteCount -= arrival.frame.byteCount
            if first == arrivals.count { (arrivals, first) = ([], 0) }
            return arrival
        }
    }

    /// With so many bytes waiting, no more are read.
    private static let mostBytes = 1 << 20

    private let state = Mutex(State())

    /// Sets whom to tell of messages.
    func setBell(_ bell: @escaping @Sendable () -> Void) {
        state.withLock { $0.bell = bell }
        if !isEmpty { bell() }
    }

    var isEmpty: Bool { state.withLock { $0.arrivals.isEmpty } }

    /// Whether enough is waiting to be taken.
    var isFull: Bool { state.withLock { $0.byteCount >= Self.mostBytes } }

    func add(_ arrival: Arrival) {
        let bell = state.withLock { state -> (@Sendable () -> Void)? in
            guard state.isOpen else { return nil }
            state.arrivals.append(arrival)
            state.byteCount += arrival.frame.byteCount
            return state.bell
        }
        bell?()
    }

    /// The first message that waits, and whether there is room for others now, and was none before.
    func take() -> (arrival: Arrival?, hasRoomAgain: Bool) {
        state.withLock { state in
            let wasFull = state.byteCount >= Self.mostBytes
            let arrival = state.take()
            return (arrival, wasFull && state.byteCount < Self.mostBytes)
        }
    }

    /// Forgets what waits, and takes in nothing more. False if it was so already.
    func close() -> Bool {
        state.withLock { state in
            defer { state = State(isOpen: false) }
            return state.isOpen
        }
    }
}

extension PortFrame {
    /// About how much memory the message takes.
    fileprivate var byteCount: Int {
        components.reduce(64) { sum, component in
            if case .data(let bytes) = component { sum + bytes.count + 32 } else { sum + 64 }
        }
    }
}
