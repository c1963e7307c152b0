import Synchronization
import SystemPackage

extension RunLoop {
    // MARK: Timers

    /// Adds `timer` to `mode` of this loop, and wakes a sleeping loop. May be called from any thread.
    ///
    /// A timer belongs to one loop, and has one date in all modes of it. Adding an invalid timer, one that is in another
    /// loop, or one that is in the mode already does nothing.
    ///
    /// - Precondition: A timer made by ``Timer/scheduled(after:forMode:tolerance:label:file:line:handler:)`` or
    ///   ``Timer/scheduled(every:forMode:tolerance:label:file:line:handler:)`` is added to the loop of the thread that made it.
    public func add(_ timer: Timer, forMode mode: Mode) {
        requireNotOfParent()
        guard !inbox.isClosed else { return }
        if LoopDiagnostics.isReporting { Watchdog.supervise(timer) }
        change(timer) { $0.add(mode, of: self) }
    }

    /// Removes `timer` from `mode`, without invalidating it.
    ///
    /// A timer that has been removed from all its modes may be added to another loop, unless it was made on a loop's thread
    /// by one of the `scheduled` methods: then only to that loop.
    public func remove(_ timer: Timer, forMode mode: Mode) {
        change(timer) { $0.remove(mode, of: self) }
    }

    /// Whether `timer` is in `mode` of this loop; for ``Mode/common``, whether it is one of the common items.
    package func contains(_ timer: Timer, forMode mode: Mode) -> Bool {
        let common = commonModes
        return timer.state.withLock { $0.loop === self && $0.membership.contains(mode, common: common) }
    }

    /// Makes this loop the owner of a new timer's closure, and adds the timer to `mode` unless the loop's thread is ending.
    @inline(__always)
    func adopt(_ timer: Timer, forMode mode: Mode?) {
        let mode = inbox.isClosed ? nil : mode
        timer.state.withLock { state in
            state.confine(to: self, mode)
            if mode != nil { useCore { $0.update(timer, &state) } }
        }
    }

    /// Updates the entries of `timer` after its modes or its date have changed.
    func update(_ timer: Timer) {
        if runOnLoopThread({ core in core.update(timer) }) { return }
        timer.state.withLock { if $0.loop === self { $0.leave() } }
    }

    private func change(_ timer: Timer, _ change: (inout Timer.State) -> Bool) {
        if isCurrent {
            let core = core
            timer.state.withLock { if change(&$0) { core.update(timer, &$0) } }
        } else if timer.state.withLock({ change(&$0) }) {
            update(timer)
        }
    }

    // MARK: Signalled sources

    /// Adds `source` to `mode` of this loop, and wakes a sleeping loop. May be called from any thread.
    ///
    /// Adding an invalid source, or one that is in the mode already, does nothing.
    public func add(_ source: Source, forMode mode: Mode) {
        requireNotOfParent()
        guard !inbox.isClosed else { return }
        if LoopDiagnostics.isReporting { Watchdog.supervise(source) }
        let common = commonModes
        source.change(in: self) { $0.add(mode, common: common) }
    }

    /// Removes `source` from `mode` of this loop.
    public func remove(_ source: Source, forMode mode: Mode) {
        let common = commonModes
        source.change(in: self) { $0.remove(mode, common: common) }
    }

    /// Whether `source` is in `mode` of this loop; for ``Mode/common``, whether it is one of the common
    /// items.
    package func contains(_ source: Source, forMode mode: Mode) -> Bool { source.contains(mode, in: self) }

    // MARK: Observers

    /// Adds `observer` to `mode`. Does nothing if it is invalid or in the mode already.
    ///
    /// - Precondition: Called on the loop's thread, and the observer is in no other loop.
    public func add(_ observer: Observer, forMode mode: Mode) {
        requireCurrent("RunLoop.add(_:forMode:) must be called")
        guard observer.isValid, !inbox.isClosed else { return }
        core.update(observer) { $0.add(mode, common: commonModes) }
    }

    /// Removes `observer` from `mode`.
    ///
    /// - Precondition: Called on the loop's thread.
    public func remove(_ observer: Observer, forMode mode: Mode) {
        guard contains(observer, forMode: mode) else { return }
        core.update(observer) { $0.remove(mode, common: commonModes) }
    }

    /// Whether `observer` is in `mode` of this loop.
    ///
    /// - Precondition: Called on the loop's thread.
    package func contains(_ observer: Observer, forMode mode: Mode) -> Bool {
        requireCurrent("RunLoop.contains(_:forMode:) must be called")
        observer.requireLoopThread()
        return observer.loop === self && observer.membership.contains(mode, common: commonModes)
    }

    // MARK: Event sources

    /// Adds `source` to `mode`. Does nothing if it is invalid or in the mode already.
    ///
    /// - Throws: ``IOError`` with what epoll_ctl(2) does: `Errno.notPermitted` for a descriptor that cannot be watched, such
    ///   as a regular file's; `Errno.badFileDescriptor` for one that is not open; `Errno.noMemory`,
    ///   `.noSpace`, and so on. The source is then in the modes that it was in before.
    /// - Precondition: Called on the loop's thread, and the source is in no other loop.
    public func add(_ source: EventSource, forMode mode: Mode) throws(IOError) {
        try attempt(.watch, source.subject, label: source.label) { () throws(Errno) in
            try register(source, forMode: mode)
        }
    }

    /// As ``add(_:forMode:)-(EventSource,_)``.
    package func register(_ source: EventSource, forMode mode: Mode) throws(Errno) {
        requireCurrent("RunLoop.add(_:forMode:) must be called")
        // A descriptor that another thread has closed must be unregistered before one of the same number is registered.
        core.drainInbox()
        guard !inbox.isClosed, source.join(self) else { return }
        let before = source.membership
        do throws(Errno) {
            try source.prepareToJoin()
            source.membership.add(mode, common: commonModes)
            try core.update(source)
        } catch {
            source.membership = before
            core.updateLeniently(source)
            throw error
        }
        if LoopDiagnostics.isReporting { source.superviseReadiness() }
        source.didJoin(mode)
    }

    /// Removes `source` from `mode`, without ending it. Once removed from all its modes, it may be added to another loop.
    ///
    /// What arrives meanwhile waits until the source is added again: connections in a listener's backlog, datagrams as far
    /// as the kernel has room, deliveries of a signal.
    ///
    /// - Precondition: Called on the loop's thread.
    public func remove(_ source: EventSource, forMode mode: Mode) {
        guard contains(source, forMode: mode) else { return }
        source.membership.remove(mode, common: commonModes)
        core.updateLeniently(source)
        if LoopDiagnostics.isReporting { source.superviseReadiness() }
        source.didLeave(mode)
    }

    /// Whether `source` is in `mode` of this loop.
    ///
    /// - Precondition: Called on the loop's thread.
    package func contains(_ source: EventSource, forMode mode: Mode) -> Bool {
        requireCurrent("RunLoop.contains(_:forMode:) must be called")
        source.requireLoopThread()
        return source.loop === self && source.membership.contains(mode, common: commonModes)
    }

    /// Traps on any thread but the loop's own.
    ///
    /// - Parameter rule: What must happen there: "RunLoop.run() must be called".
    package func requireCurrent(_ rule: @autoclosure () -> String) {
        if !isCurrent { refuse(rule()) }
    }

    private func refuse(_ rule: String) -> Never {
        requireNotOfParent()
        fatalError("\(rule) on the loop's own thread: \(name) was used on \(currentThreadName).")
    }
}
