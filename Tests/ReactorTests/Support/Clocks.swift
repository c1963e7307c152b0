import Reactor

extension Deadline {
    /// Keeps the thread busy until the clock is past this: what a long callback does.
    func busyWait() {
        while Deadline.now <= self {}
    }

    static func + (deadline: Deadline, duration: Duration) -> Deadline { deadline.advanced(by: duration) }

    static func - (deadline: Deadline, duration: Duration) -> Deadline {
        deadline.advanced(by: .zero - duration)
    }

    static func - (later: Deadline, earlier: Deadline) -> Duration { earlier.duration(to: later) }
}

extension Duration {
    /// Whether this is a multiple of `other`: how a date keeps its phase.
    func isMultiple(of other: Duration) -> Bool { attoseconds % other.attoseconds == 0 }
}
