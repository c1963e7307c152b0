// Where Foundation's spellings of these are seen too, with a `Date`, those come first: hence the attribute. It decides
// for `.distantFuture`, which both types have, and for what a variable without a type becomes.

extension RunLoop {
    /// Runs in the default mode until it has nothing left to run for: on the main thread, forever.
    ///
    /// ``stop()`` does not end it, as in Cocoa: it ends one activation, and this begins the next. A loop that
    /// is to be stopped runs with ``run(in:until:returnAfterSourceHandled:)``.
    /// - Precondition: Called on the loop's own thread.
    public func run() {
        while run(mode: .default, before: .distantFuture) {}
    }

    /// Runs in the default mode until `deadline`, making at least one pass; returns at once if the mode is
    /// empty.
    ///
    /// - Precondition: Called on the loop's own thread.
    @_disfavoredOverload
    public func run(until deadline: Deadline) {
        while run(mode: .default, before: deadline), Deadline.now < deadline {}
    }

    /// Runs once in `mode`, until a source has been handled or `deadline` has passed.
    ///
    /// Timers fire meanwhile, any number of them, and do not make it return. So the classic `while !done &&
    /// loop.run(mode: .default, before: .distantFuture) {}` looks at `done` after each source.
    /// - Returns: Whether it ran: false for an empty mode, for ``Mode/common``, and on a thread that is not
    ///   the loop's.
    @_disfavoredOverload
    @discardableResult
    public func run(mode: Mode, before deadline: Deadline) -> Bool {
        assertNotOfParent()
        guard isCurrent, mode != .common else { return false }
        return core.activate(mode, until: deadline.uptimeNanoseconds, returnAfterSource: true) != nil
    }

    /// Polls `mode` once, and says when its next timer is due.
    ///
    /// - Returns: The date of the mode's earliest timer, ``Deadline/distantFuture`` if it has other things
    ///   only, and nil if it is empty or the thread is not the loop's.
    @_disfavoredOverload
    public func limitDate(forMode mode: Mode) -> Deadline? {
        guard run(mode: mode, before: .distantPast) else { return nil }
        let groups = core.groups(of: mode)
        guard core.canGoOn(groups) else { return nil }
        let own = groups.own.timers.earliestDate ?? .max
        let common = groups.common.timers.earliestDate ?? .max
        return Deadline(uptimeNanoseconds: min(own, common))
    }

    /// Runs once in `mode`, as ``run(mode:before:)`` does.
    @_disfavoredOverload
    public func acceptInput(forMode mode: Mode, before deadline: Deadline) {
        run(mode: mode, before: deadline)
    }

    /// As ``perform(inModes:_:)``, with Cocoa's label.
    @_disfavoredOverload
    public func perform(inModes modes: [Mode], block: @escaping @Sendable () -> Void) {
        perform(inModes: modes, block)
    }
}
