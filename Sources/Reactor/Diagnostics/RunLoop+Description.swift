extension RunLoop: CustomStringConvertible, CustomDebugStringConvertible {
    /// The loop in a few words: which it is, and what it is doing.
    public var description: String { "\(name) (\(activity))" }

    /// Everything that the loop serves, mode by mode, one item per line; for a debugger or a log.
    ///
    /// On another thread than the loop's it asks the loop, as ``explain()`` does. The wording may change.
    public var debugDescription: String {
        guard !inbox.belongsToParent else {
            return [description, "  (it belongs to the parent process)"].lines
        }
        let (description, inbox) = (description, inbox.pendingCounts)
        let lines = [
            description,
            "  common modes: \(commonModes.names.joined(separator: ", "))",
            "  inbox: \(inbox.blocks) blocks, \(inbox.commands) changes, \(inbox.signals) signals",
        ]
        let modes = ask { $0.modeDescriptions } ?? ["  (its modes are known on its own thread only)"]
        return (lines + modes).lines
    }

    private var activity: String {
        guard let mode = currentMode else { return inbox.isClosed ? "ended" : "not running" }
        return "\(isWaiting ? "waiting" : "running") in \(mode.shortName)"
    }
}

extension RunLoop.Core {
    fileprivate var modeDescriptions: [String] {
        knownStates.filter(\.isWorthDescribing).flatMap(describe)
    }

    private func describe(_ state: ModeState) -> [String] {
        let now = Deadline.now
        let ready = state.poller == nil ? "" : ", \(state.ready.count) ready"
        let items =
            state.timers.elements.map { $0.description(at: now) }.sorted()
            + state.sources.members.map(\.description).sorted()
            + state.eventSources.members.map(\.dumpLine).sorted()
            + state.observers.inOrder().map(\.observer.description)
        return ["  mode \(state.mode.shortName): \(state.blockCount) blocks\(ready)"]
            + items.map { "    \($0)" }
    }
}

extension ModeState {
    fileprivate var isWorthDescribing: Bool {
        hasItems || !observers.isEmpty || self.blockCount > 0 || self.poller != nil
    }
}

extension [String] {
    fileprivate var lines: String { joined(separator: "\n") }
}

// MARK: - Items

extension Timer: CustomStringConvertible {
    /// When the timer fires next, and how often.
    public var description: String { description(at: .now) }

    func description(at now: Deadline) -> String {
        state.withLock { state in
            let title = state.name.naming("timer")
            guard state.isValid else { return "\(title) (invalid)" }
            let due = now.duration(to: Deadline(uptimeNanoseconds: state.date))
            let interval = period > 0 ? ", every \(Duration.nanoseconds(period))" : ""
            let tolerance = state.tolerance > 0 ? ", tolerance \(Duration.nanoseconds(state.tolerance))" : ""
            let firing = state.isFiring ? ", being called" : ""
            let date = due < .zero ? "overdue by \((.zero - due).rounded)" : "in \(due.rounded)"
            return "\(title): \(date)\(interval)\(tolerance)\(firing)"
        }
    }
}

extension RunLoop.Source: CustomStringConvertible {
    /// The source's order, and whether it is signalled.
    public var description: String {
        guard isValid else { return "\(title) (invalid)" }
        return "\(title): order \(order)\(isSignalled ? ", signalled" : "")"
    }
}

extension RunLoop.Observer: CustomStringConvertible {
    /// The observer's activities, and its order.
    public var description: String {
        guard isValid else { return "\(title) (invalid)" }
        return "\(title): \(activities), order \(order)\(repeats ? "" : ", once")"
    }
}

extension RunLoop.Activities: CustomStringConvertible {
    /// The activities' names.
    public var description: String {
        names.joined(separator: " ")
    }

    var names: [String] {
        if self == .all { return ["all activities"] }
        let names: [(RunLoop.Activities, String)] = [
            (.entry, "entry"), (.beforeTimers, "beforeTimers"), (.beforeSources, "beforeSources"),
            (.beforeWaiting, "beforeWaiting"), (.afterWaiting, "afterWaiting"), (.exit, "exit"),
        ]
        return isEmpty ? ["no activity"] : names.filter { contains($0.0) }.map(\.1)
    }
}

extension Readiness: CustomStringConvertible {
    /// The names of the members.
    public var description: String {
        let names: [(Readiness, String)] = [
            (.readable, "readable"), (.writable, "writable"), (.peerEnded, "ended by its peer"),
        ]
        let members = names.filter { contains($0.0) }.map(\.1)
        return members.isEmpty ? "nothing" : members.joined(separator: " ")
    }
}
