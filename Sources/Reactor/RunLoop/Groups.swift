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

    /// Whether blocks wait, or entries of blocks that have been run by way of another queue.
    var haveBlocks: Bool { !own.blocks.entries.isEmpty || !common.blocks.entries.isEmpty }

    var haveSignals: Bool { own.hasSignals || common.hasSignals }
}
