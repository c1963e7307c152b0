import Reactor

/// Something that can go wrong in a simulation, once: what it is, what it happens to, and how often that was asked before.
///
/// It has the same name in each run of a seed, whatever else happens there.
struct Fault: Hashable, CustomStringConvertible {
    enum Kind: UInt64, CaseIterable {
        case refusal, reset, tooManyFiles, failedLookup, slowLookup, clockJump, loss, duplication
    }

    struct Subject: Hashable {
        enum Kind: UInt64, CaseIterable {
            case connection, datagram, listener, lookup
        }

        fileprivate let kind: Kind
        fileprivate let number: Int

        static func connection(_ number: Int) -> Subject { Subject(kind: .connection, number: number) }
        static func datagram(_ number: Int) -> Subject { Subject(kind: .datagram, number: number) }
        static func listener(_ number: Int) -> Subject { Subject(kind: .listener, number: number) }
        static func lookup(_ number: Int) -> Subject { Subject(kind: .lookup, number: number) }
    }

    let kind: Kind
    let subject: Subject
    let occurrence: Int

    /// Such as `reset-connection-4-0`.
    var description: String { "\(kind)-\(subject.kind)-\(subject.number)-\(occurrence)" }

    init(_ kind: Kind, _ subject: Subject, _ occurrence: Int) {
        (self.kind, self.subject, self.occurrence) = (kind, subject, occurrence)
    }

    /// Parses a description.
    init?(_ text: some StringProtocol) {
        let words = text.split(separator: "-", omittingEmptySubsequences: false)
        guard words.count == 4, let kind = Kind.allCases.first(where: { "\($0)" == words[0] }),
            let subject = Subject.Kind.allCases.first(where: { "\($0)" == words[1] }),
            let number = Int(words[2]), let occurrence = Int(words[3])
        else { return nil }
        self.init(kind, Subject(kind: subject, number: number), occurrence)
    }
}

/// Decides which faults happen. A decision depends on the seed and on the fault, and on nothing else.
struct FaultPlan {
    let seed: UInt64
    /// Those that may happen; nil for all.
    private let kept: Set<Fault>?
    /// Those that have happened.
    private(set) var happened: [Fault] = []
    private var counts: [Fault: Int] = [:]

    init(seed: UInt64, kept: [Fault]?) { (self.seed, self.kept) = (seed, kept.map(Set.init)) }

    /// The random choices besides the faults.
    enum Choice: UInt64 {
        // Larger than the kinds of faults.
        case lookup = 100
        case attempt, fromClient, fromServer, datagram, library
    }

    /// A generator for one thing, such as the latency of one connection.
    func generator(_ choice: Choice, _ number: UInt64 = 0) -> SeededGenerator {
        generator(choice.rawValue, number)
    }

    private func generator(_ numbers: UInt64...) -> SeededGenerator {
        SeededGenerator(seed: numbers.reduce(seed) { SeededGenerator.mix($0 &+ 1, $1) })
    }

    /// A generator for a fault: its first number decides whether it happens, and the others how.
    func generator(_ fault: Fault) -> SeededGenerator {
        let subject = fault.subject
        return generator(
            fault.kind.rawValue, subject.kind.rawValue, UInt64(subject.number),
            UInt64(fault.occurrence))
    }

    /// Decides whether something happens to a subject. Returns it if it does.
    mutating func draw(_ kind: Fault.Kind, _ probability: Double, _ subject: Fault.Subject)
        -> Fault?
    {
        guard probability > 0 else { return nil }
        let first = Fault(kind, subject, 0)
        let fault = Fault(kind, subject, counts[first, default: 0])
        counts[first] = fault.occurrence + 1
        var generator = generator(fault)
        guard Double.random(in: 0..<1, using: &generator) < probability else { return nil }
        if let kept, !kept.contains(fault) { return nil }
        happened.append(fault)
        return fault
    }
}
