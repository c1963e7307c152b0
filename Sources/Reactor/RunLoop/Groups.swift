extension RunLoop {
    /// The two groups of items that a pass looks at.
    struct Groups {
        /// The mode's own.
        let own: ModeState
        /// What all common modes share; empty for a mode that is not one of them. Looked up each time, as a callback
        /// may make the mode common while it runs.
        var common: ModeState {
            @inline(__always) get { own.shared }
        }
    }
}

extension RunLoop.Groups {
    var haveTimers: Bool { !own.timers.isEmpty || !common.timers.isEmpty }

    var haveBlocks: Bool { own.blockCount > 0 || common.blockCount > 0 }

    var haveSignals: Bool { !own.signals.isEmpty || !common.signals.isEmpty }
}
