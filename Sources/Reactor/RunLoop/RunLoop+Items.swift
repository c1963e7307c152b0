import Synchronization
public import SystemPackage

extension RunLoop {
    // MARK: Timers

    /// Has `timer` fire in `mode` of this loop; from any thread, and a sleeping loop notices.
    ///
    /// A timer belongs to one loop, in any of its modes, where it has one date. Adding an invalid timer, one
    /// that is another loop's, or one that is in the mode already does nothing.
    ///
    /// - Precondition: A timer whose closure belongs to a thread, because it was made by
    ///   ``Timer/scheduled(after:forMode:tolerance:handler:)`` or its like, is added to that thread's loop only.
    public func add(_ timer: Timer, forMode mode: Mode) {
        assertNotOfParent()
        guard !inbox.isClosed else { return }
        change(timer) { $0.add(mode, of: self) }
    }

    /// Takes `timer` out of `mode`, without invalidating it.
    ///
    /// Out of all its modes, it may join another loop, unless its closure belongs to a thread: then it may come back
    /// to that thread's loop.
    public func remove(_ timer: Timer, forMode mode: Mode) {
        change(timer) { $0.remove(mode, of: self) }
    }

    /// Whether `timer` is in `mode` of this loop; for ``Mode/common``, whether it is one of the common items.
    public func contains(_ timer: Timer, forMode mode: Mode) -> Bool {
        let common = commonModes
        return timer.state.withLock { $0.loop === self && $0.membership.contains(mode, common: common) }
    }

    /// Takes a new timer whose closure belongs to the calling thread, and files it in `mode`, unless the loop is at its end.
    @inline(__always)
    func take(_ timer: Timer, forMode mode: Mode?) {
        let mode = inbox.isClosed ? nil : mode
        timer.state.withLock { state in
            state.settle(in: self, mode)
            if mode != nil { useCore { $0.file(timer, &state) } }
        }
    }

    /// Files `timer` anew after its modes or its date have changed.
    func refile(_ timer: Timer) {
        if atHome({ core in core.file(timer) }) { return }
        timer.state.withLock { state in
            if state.loop === self { state.leave() }
            _ = state.takeStrays(of: identity)
        }
    }

    private func change(_ timer: Timer, _ change: (inout Timer.State) -> Bool) {
        if isCurrent {
            let core = core
            timer.state.withLock { if change(&$0) { core.file(timer, &$0) } }
        } else if timer.state.withLock({ change(&$0) }) {
            refile(timer)
        }
    }

    // MARK: Signalled sources

    /// Has `source` served in `mode` of this loop; from any thread, and a sleeping loop notices.
    ///
    /// Adding an invalid source, or one that is in the mode already, does nothing.
    public func add(_ source: Source, forMode mode: Mode) {
        assertNotOfParent()
        guard !inbox.isClosed else { return }
        let common = commonModes
        source.change(in: self) { $0.add(mode, common: common) }
    }

    /// Takes `source` out of `mode` of this loop.
    public func remove(_ source: Source, forMode mode: Mode) {
        let common = commonModes
        source.change(in: self) { $0.remove(mode, common: common) }
    }

    /// Whether `source` is in `mode` of this loop; for ``Mode/common``, whether it is one of the common
    /// items.
    public func contains(_ source: Source, forMode mode: Mode) -> Bool { source.contains(mode, in: self) }

    // MARK: Observers

    /// Has `observer` told of what happens in `mode`. Does nothing if it is invalid, another loop's, or in
    /// the mode already.
    ///
    /// - Precondition: Called on the loop's thread.
    public func add(_ observer: Observer, forMode mode: Mode) {
        assertCurrent()
        guard !inbox.isClosed, observer.isValid, observer.loop == nil || observer.loop === self else {
            return
        }
        core.update(observer) { $0.add(mode, common: commonModes) }
    }

    /// Takes `observer` out of `mode`.
    ///
    /// - Precondition: Called on the loop's thread.
    public func remove(_ observer: Observer, forMode mode: Mode) {
        assertCurrent()
        guard observer.loop === self else { return }
        core.update(observer) { $0.remove(mode, common: commonModes) }
    }

    /// Whether `observer` is in `mode` of this loop.
    ///
    /// - Precondition: Called on the loop's thread.
    public func contains(_ observer: Observer, forMode mode: Mode) -> Bool {
        assertCurrent()
        return observer.loop === self && observer.membership.contains(mode, common: commonModes)
    }

    // MARK: Event sources

    /// Has `source` served in `mode`. Does nothing if it is over, another loop's, or in the mode already.
    ///
    /// - Throws: What epoll_ctl(2) does: `Errno.notPermitted` for a descriptor that cannot be watched, such
    ///   as a regular file's; `Errno.badFileDescriptor` for one that is not open; `Errno.noMemory`,
    ///   `.noSpace`, and so on. The source is then in the modes that it was in before.
    /// - Precondition: Called on the loop's thread.
    public func add(_ source: EventSource, forMode mode: Mode) throws(Errno) {
        assertCurrent()
        // What another thread has closed must be out of the pollers before a number of the same value comes in.
        core.collect()
        guard !inbox.isClosed, source.join(self) else { return }
        let before = source.membership
        do throws(Errno) {
            try source.prepareToJoin()
            source.membership.add(mode, common: commonModes)
            try core.file(source)
        } catch {
            source.membership = before
            core.refile(source)
            throw error
        }
        source.joined(mode)
    }

    /// Takes `source` out of `mode`, without ending it. Out of all its modes, it may join another loop.
    ///
    /// What its descriptor is ready for waits until it is added again: connections in a listener's backlog, datagrams as far
    /// as the kernel has room, deliveries of a signal.
    ///
    /// - Precondition: Called on the loop's thread.
    public func remove(_ source: EventSource, forMode mode: Mode) {
        guard contains(source, forMode: mode) else { return }
        source.membership.remove(mode, common: commonModes)
        core.refile(source)
        source.left(mode)
    }

    /// Whether `source` is in `mode` of this loop.
    ///
    /// - Precondition: Called on the loop's thread.
    public func contains(_ source: EventSource, forMode mode: Mode) -> Bool {
        assertCurrent()
        return source.loop === self && source.membership.contains(mode, common: commonModes)
    }

    /// Traps on any thread but the loop's own.
    func assertCurrent() {
        assertNotOfParent()
        precondition(isCurrent, "observers and descriptor sources are used on their run loop's own thread")
    }
}
