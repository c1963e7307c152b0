import Synchronization
import SystemPackage

// One line for each kind of item: what it is, and what state it is in.

extension Timer: CustomStringConvertible {
    /// When the timer fires next, and how often.
    public var description: String { description(at: .now) }

    func description(at now: Deadline) -> String {
        state.withLock { state in
            guard state.isValid else { return "timer (invalid)" }
            let due = now.duration(to: Deadline(uptimeNanoseconds: state.date))
            let interval = period > 0 ? ", every \(Duration.nanoseconds(period))" : ""
            let tolerance = state.tolerance > 0 ? ", tolerance \(Duration.nanoseconds(state.tolerance))" : ""
            let callout = state.isFiring ? ", being called" : ""
            return "timer: in \(due)\(interval)\(tolerance)\(callout)"
        }
    }
}

extension RunLoop.Source: CustomStringConvertible {
    /// The source's order, and whether it is signalled.
    public var description: String {
        guard isValid else { return "source (invalid)" }
        return "source: order \(order)\(isSignalled ? ", signalled" : "")"
    }
}

extension RunLoop.Observer: CustomStringConvertible {
    /// What the observer is told of, and its order.
    public var description: String {
        guard isValid else { return "observer (invalid)" }
        return "observer: \(activities), order \(order)\(repeats ? "" : ", once")"
    }
}

extension RunLoop.Activities: CustomStringConvertible {
    /// The activities' names.
    public var description: String {
        if self == .all { return "all activities" }
        let names: [(RunLoop.Activities, String)] = [
            (.entry, "entry"), (.beforeTimers, "beforeTimers"), (.beforeSources, "beforeSources"),
            (.beforeWaiting, "beforeWaiting"), (.afterWaiting, "afterWaiting"), (.exit, "exit"),
        ]
        return names.filter { contains($0.0) }.map(\.1).joined(separator: " ")
    }
}

extension Readiness: CustomStringConvertible {
    /// What a descriptor is ready, or watched, for.
    public var description: String {
        switch (contains(.readable), contains(.writable)) {
        case (true, true): "readable writable"
        case (true, false): "readable"
        case (false, true): "writable"
        case (false, false): "nothing"
        }
    }
}
