extension RunLoop: CustomStringConvertible, CustomDebugStringConvertible {
    /// The loop in a few words: which it is, and what it is doing.
    public var description: String { "\(name) (\(activity))" }

    /// All that the loop attends to, mode by mode, one item to a line; for a debugger or a log.
    ///
    /// Asked on another thread than the loop's, it says what can be known from there. The wording may change.
    public var debugDescription: String {
        let inbox = inbox.backlog
        let lines = [
            description,
            "  common modes: \(commonModes.names)",
            "  inbox: \(inbox.blocks) blocks, \(inbox.commands) changes, \(inbox.signals) signals",
        ]
        guard isCurrent else {
            return (lines + ["  (asked on another thread: its modes are known on its own only)"]).lines
        }
        return (lines + core.dump).lines
    }

    private var name: String { isMain ? "main run loop" : "run loop \(identity.number)" }

    private var activity: String {
        guard let mode = currentMode else { return inbox.isClosed ? "ended" : "not running" }
        return "\(isWaiting ? "waiting" : "running") in \(mode)"
    }
}

extension RunLoop.Core {
    fileprivate var dump: [String] { knownStates.filter(\.isWorthTelling).flatMap(dump) }

    private func dump(_ state: ModeState) -> [String] {
        let now = Deadline.now
        let ready = state.poller == nil ? "" : ", \(state.ready.count) ready"
        let items =
            state.timers.elements.map { $0.description(at: now) }.sorted()
            + state.sources.members.map(\.description).sorted()
            + state.eventSources.members.map(\.description).sorted()
            + state.observers.inOrder().map(\.observer.description)
        return ["  mode \(state.mode): \(state.blockCount) blocks\(ready)"] + items.map { "    \($0)" }
    }
}

extension ModeState {
    fileprivate var isWorthTelling: Bool {
        hasItems || !observers.isEmpty || self.blockCount > 0 || self.poller != nil
    }
}

extension ModeSet {
    fileprivate var names: String { members.map(\.rawValue).joined(separator: ", ") }
}

extension [String] {
    fileprivate var lines: String { joined(separator: "\n") }
}
