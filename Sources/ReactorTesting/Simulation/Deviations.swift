import Reactor

/// Draws the faults of a simulation. Each decision depends on the seed and on what it is about, and not on other decisions.
struct Deviations {
    enum Kind: UInt64 {
        case refusal, reset, tooManyFiles, failedLookup, slowLookup, clockJump, loss, duplication
    }

    /// A connection, host or the like, and what may happen to it.
    private struct Subject: Hashable {
        let kind: Kind
        let number: Int
    }

    let seed: UInt64
    /// The numbers of the deviations that happen; nil for all.
    private let kept: Set<Int>?
    /// How many have been drawn.
    private(set) var count = 0
    private var decisionCounts: [Subject: UInt64] = [:]

    init(seed: UInt64, kept: Set<Int>?) { (self.seed, self.kept) = (seed, kept) }

    /// A generator for one thing, such as the latency of one connection.
    func generator(_ numbers: UInt64...) -> SeededGenerator {
        SeededGenerator(seed: numbers.reduce(seed) { SeededGenerator.mix($0 &+ 1, $1) })
    }

    /// Decides whether something happens to the subject with this number. Returns the number of the deviation.
    mutating func draw(_ kind: Kind, _ probability: Double, _ number: Int) -> Int? {
        guard probability > 0 else { return nil }
        let decision = decisionCounts[Subject(kind: kind, number: number), default: 0]
        decisionCounts[Subject(kind: kind, number: number)] = decision + 1
        var generator = generator(kind.rawValue, UInt64(bitPattern: Int64(number)), decision)
        guard Double.random(in: 0..<1, using: &generator) < probability else { return nil }
        count += 1
        return kept?.contains(count) ?? true ? count : nil
    }
}

/// What a world has done.
struct TraceEntry: CustomStringConvertible {
    enum Event {
        case listening(SocketAddress)
        case connecting(Int, from: SocketAddress, to: SocketAddress)
        case connected(Int)
        case failed(Int, CInt)
        case arrival(Int, isFromClient: Bool, Int)
        case end(Int, isFromClient: Bool)
        case lookup(String)
        case datagram(Int, from: SocketAddress, to: SocketAddress, Int)
        case delivery(Int)
        case unreceived(Int)
        case deviation(Int, Deviations.Kind)
        case partition(String, String)
        case heal
    }

    /// In nanoseconds since the world began.
    let time: Int64
    let event: Event

    var description: String { "\(Duration.nanoseconds(time)): \(text)" }

    private var text: String {
        switch event {
        case .listening(let address): "listening at \(address)"
        case .connecting(let number, let from, let to): "connection \(number) from \(from) to \(to)"
        case .connected(let number): "connection \(number) is made"
        case .failed(let number, let code): "connection \(number) fails with error \(code)"
        case .arrival(let number, let isFromClient, let count):
            "connection \(number): \(count) bytes arrive from the \(isFromClient ? "client" : "server")"
        case .end(let number, let isFromClient):
            "connection \(number): the end arrives from the \(isFromClient ? "client" : "server")"
        case .lookup(let name): "lookup of \(name)"
        case .datagram(let number, let from, let to, let count):
            "datagram \(number) from \(from) to \(to), \(count) bytes"
        case .delivery(let number): "datagram \(number) arrives"
        case .unreceived(let number): "datagram \(number) has no receiver"
        case .deviation(let number, let kind): "deviation \(number): \(kind)"
        case .partition(let first, let second): "partition between \(first) and \(second)"
        case .heal: "partitions end"
        }
    }
}
