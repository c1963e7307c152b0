/// How often each timer has fired in each phase of the demonstration.
struct Counts {
    /// The timers, by the mode that each is in.
    enum Clock: String, CaseIterable {
        case `default`
        case common
        case tracking

        var column: Int { Self.allCases.firstIndex(of: self) ?? 0 }
    }

    /// Before, during and after the drag.
    enum Phase: String, CaseIterable {
        case before
        case during
        case after
    }

    private struct Key: Hashable {
        let clock: Clock
        let phase: Phase
    }

    private var counts: [Key: Int] = [:]

    subscript(clock: Clock, phase: Phase) -> Int {
        get { counts[Key(clock: clock, phase: phase), default: 0] }
        set { counts[Key(clock: clock, phase: phase)] = newValue }
    }

    var json: String {
        let members = Clock.allCases.flatMap { clock in
            Phase.allCases.map { phase in "\"\(clock.rawValue)_\(phase.rawValue)\":\(self[clock, phase])" }
        }
        return "{\(members.joined(separator: ","))}"
    }

    var table: String {
        let lines = Clock.allCases.map { clock in
            let parts = Phase.allCases.map { phase in "\(self[clock, phase]) \(phase.rawValue)" }
            return "The \(clock.rawValue) timer fired: \(parts.joined(separator: ", ")) the drag."
        }
        return lines.joined(separator: "\n")
    }
}
