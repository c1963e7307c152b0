import ExampleSupport

/// How often each timer fired in each phase of the demonstration.
struct Counts {
    /// A timer, named after its mode.
    enum TimerName: String, CaseIterable {
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
        let timer: TimerName
        let phase: Phase
    }

    private var counts: [Key: Int] = [:]

    subscript(timer: TimerName, phase: Phase) -> Int {
        get { counts[Key(timer: timer, phase: phase), default: 0] }
        set { counts[Key(timer: timer, phase: phase)] = newValue }
    }

    var json: String {
        let members = TimerName.allCases.flatMap { timer in
            Phase.allCases.map { phase in
                ("\(timer.rawValue)_\(phase.rawValue)", JSON.integer(self[timer, phase]))
            }
        }
        return JSON.object(members).description
    }

    var table: String {
        let lines = TimerName.allCases.map { timer in
            let parts = Phase.allCases.map { phase in "\(self[timer, phase]) \(phase.rawValue)" }
            return "The \(timer.rawValue) timer fired: \(parts.joined(separator: ", ")) the drag."
        }
        return lines.joined(separator: "\n")
    }
}
