import Glibc
public import SystemPackage

extension RunLoop {
    /// Lets another event loop run this one: a GUI toolkit's, a compositor's, a game engine's or a language runtime's, which
    /// owns the thread.
    ///
    /// The host watches ``descriptor`` for reading and calls ``dispatch()`` when it is readable. Nothing else is needed:
    /// timers, descriptors, streams, posted blocks, executors' jobs and, on the main thread, `DispatchQueue.main` and
    /// `@MainActor` are served as if the loop ran in `mode`. A host of poll(2) alone:
    ///
    /// ```swift
    /// let hosting = try RunLoop.Hosting(.current)
    /// var request = pollfd(fd: hosting.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    /// repeat { poll(&request, 1, -1) } while hosting.dispatch()
    /// ```
    ///
    /// The whole hosting is one activation of the loop: ``RunLoop/currentMode`` is the mode, observers are called as in a run
    /// of the loop's own, with ``RunLoop/Activities/entry`` when the hosting begins and ``RunLoop/Activities/exit`` when it
    /// ends, and handlers may nest runs, in this mode or another. Unlike a run it does not end when the mode is empty.
    ///
    /// Handlers are called within ``dispatch()``; and within the initializer and ``prepare()``, for what was posted or
    /// signalled before. A host that runs its own loop again within a handler calls ``prepare()`` before it waits there.
    ///
    /// A hosting belongs to the loop's thread: every call on another thread traps. Releasing it ends it.
    public final class Hosting {
        private let loop: RunLoop
        /// Contains the epoll(7) of the mode's poller. Nil once the hosting has ended.
        private var epoll: OwnedDescriptor?
        private let number: CInt
        /// Like `next`, used until the loop's thread ends, which ends the hosting first.
        private var running: RunningMode
        private let outer: Inbox.OuterActivation
        /// How many activations there are, this one included.
        private let depth: Int
        /// Outlives this hosting, or ends it with the loop's thread: `end()` of an outer hosting traps before.
        private unowned var outerHosting: Hosting?
        /// The wait that a pass has begun; nil while handlers are called.
        private var wait: Core.Wait?
        /// How many calls of this hosting are calling handlers, one within the other.
        private var calls = 0
        /// The mode to enter after the handlers. Its poller is in `epoll` already.
        private var next: RunningMode?
        private var isEnding = false
        private var isEnded = false
        /// This object from ``endAfterNestedRun()`` to the end.
        private var retained: Hosting?
        /// Called once, when the hosting or the loop's thread ends.
        package var endHandler: (() -> Void)?

        /// Begins to host a loop in a mode.
        ///
        /// - Parameters:
        ///   - loop: The calling thread's loop.
        ///   - mode: The mode to be in; not ``RunLoop/Mode/common``.
        /// - Throws: ``IOError``, as with `Errno.tooManyOpenFiles`.
        /// - Precondition: Called on the loop's own thread.
        public init(_ loop: RunLoop, mode: Mode = .default) throws(IOError) {
            loop.requireCurrent("RunLoop.Hosting must be made")
            let core = loop.core
            if core.loop.isMain { core.serveMainQueue() }
            core.drainInbox()
            let epoll = try attempt(.start, "hosting of the \(loop.name)") { () throws(Errno) in
                try OwnedDescriptor.epoll()
            }
            running = try core.nest(mode, in: epoll)
            number = epoll.number
            self.epoll = consume epoll
            self.loop = loop
            self.mode = mode
            outerHosting = core.hosting
            outerHosting?.suspend()
            outer = loop.inbox.beginActivation(in: mode, isHosted: true)
            depth = loop.inbox.activationCount
            core.hosting = self
            core.notify(.entry, running)
            prepare()
        }

        deinit { if !isEnded { end() } }

        // MARK: For the host

        /// The descriptor that the host watches: readable, for poll(2), epoll(7) or select(2), when ``dispatch()`` has
        /// something to do. It stays the same, also when the mode changes, until the hosting ends and closes it.
        public var descriptor: FileDescriptor { FileDescriptor(rawValue: number) }

        /// Does everything in a pass of the loop that comes before the wait, unless that was done already.
        ///
        /// ``dispatch()`` ends with it. A host needs it only before it waits inside a handler, or for its own prepare phase.
        /// - Returns: Whether ``dispatch()`` has something to do at once; the descriptor is readable then.
        @discardableResult
        public func prepare() -> Bool {
            let core = requireCurrent("RunLoop.Hosting.prepare()")
            if wait == nil { callHandlers { beginWait(core) } }
            if case .until(let time) = wait { return time == .min }
            return wait != nil
        }

        /// Whether to call ``dispatch()`` before the host waits: nothing is prepared, because the host runs its own loop
        /// within a handler or other code has run this one, or there is something to do at once.
        ///
        /// Calls no handlers. It is for a host that has a prepare phase, and cannot run its own loop within that.
        public var needsDispatch: Bool {
            _ = requireCurrent("RunLoop.Hosting.needsDispatch")
            guard case .until(let time) = wait else { return !isEnding }
            return time == .min
        }

        /// Serves what is ready, without waiting, and prepares the next wait.
        ///
        /// - Returns: Whether the host should continue: false once ``RunLoop/stop()`` has been called, or the hosting has
        ///   ended. The host decides what to do; the hosting itself continues after `stop()`.
        @discardableResult
        public func dispatch() -> Bool {
            let core = requireCurrent("RunLoop.Hosting.dispatch()")
            prepare()
            guard let wait = wait.take() else { return false }
            currentTimeSource?.didWait()
            var isStopped = false
            callHandlers {
                if case .until = wait {
                    core.endWait(.until(.min), running)
                } else {
                    core.endWait(wait, running)
                }
                core.fireTimers(running)
                _ = core.serveReady(running, onlyFirst: false)
                _ = core.runBlocks(running)
                core.drainInbox()
                isStopped = loop.inbox.takeStopRequest()
                // A host's loop within a handler may have prepared before the rest of the handlers was called.
                suspend()
                if isStopped { wakeHost() } else { beginWait(core) }
            }
            return !isStopped && !isEnding
        }

        /// Whether neither ``end()`` has been called nor the loop's thread has ended.
        package var isValid: Bool { !isEnding }

        /// The mode that the loop is in.
        package private(set) var mode: Mode

        /// Changes the mode: at once, or from within a handler after the other handlers of its pass, and from within a nested
        /// run after that.
        ///
        /// Observers of the former mode are called for ``RunLoop/Activities/exit``, and those of the new one for
        /// ``RunLoop/Activities/entry``.
        /// - Throws: ``IOError`` if the mode has never run and there are no descriptors left. The mode stays the same then.
        public func setMode(_ mode: Mode) throws(IOError) {
            let core = requireCurrent("RunLoop.Hosting.setMode(_:)")
            guard !isEnding, mode != (next?.own.mode ?? self.mode) else { return }
            let former = next
            next = mode == self.mode ? nil : try core.nest(mode, in: epoll!)
            former?.own.poller?.unnest(from: epoll!)
            guard calls == 0, !isInNestedRun else { return }
            suspend()
            prepare()
        }

        /// Ends the hosting and closes the descriptor, which the host must not watch any more: at once, or from within a
        /// handler after the other handlers of its pass.
        ///
        /// - Precondition: No run of the loop that a handler began is in progress.
        public func end() {
            guard !isEnding else { return }
            _ = requireCurrent("RunLoop.Hosting.end()")
            require(
                !isInNestedRun,
                "RunLoop.Hosting.end() must be called within the run of the loop that the hosting began in, if any, and "
                    + "not within a nested one.")
            isEnding = true
            finishIfIdle()
        }

        /// Ends the hosting as ``end()`` does, or at the end of the nested run that is in progress, and retains it until then.
        package func endAfterNestedRun() {
            guard !isEnding else { return }
            _ = requireCurrent("RunLoop.Hosting.end()")
            guard isInNestedRun else { return end() }
            suspend()
            (isEnding, retained) = (true, self)
        }

        // MARK: For the loop

        /// Ends the wait of the host, because the loop's own thread runs the loop, or ends it.
        func suspend() {
            guard case .until = wait.take() else { return }
            currentTimeSource?.didWait()
            resumeCall()
            loop.inbox.endSleep()
            loop.inbox.setWaiting(false)
            loop.core.notify(.afterWaiting, running)
        }

        /// Signals the host to call ``dispatch()`` after ``suspend()``.
        func resume() {
            // The run may have begun another wait, by a handler that runs the host's loop, and has ended its sleep.
            suspend()
            if isEnding { finishIfIdle() } else if calls == 0 { wakeHost() }
        }

        /// The loop's thread ends, and with it this hosting and those around it.
        func loopEnded() {
            (isEnding, isEnded, wait) = (true, true, nil)
            epoll = nil
            defer { retained = nil }
            endHandler.take()?()
            outerHosting?.loopEnded()
        }

        // MARK: Inside

        /// Calls `body`, which calls handlers, and then ends the hosting if one of them has asked for that.
        private func callHandlers(_ body: () -> Void) {
            guard !isEnding else { return }
            // A handler runs the host's loop: neither that nor the wait for it is the handler's time.
            pauseCall()
            calls += 1
            if calls == 1 { loop.inbox.setWaiting(false) }
            body()
            calls -= 1
            if wait == nil { resumeCall() } else { pauseCall() }
            // It is the host's turn, whether to wait or to call ``dispatch()`` at once.
            if isEnding { finishIfIdle() } else if calls == 0 { loop.inbox.setWaiting(true) }
        }

        private func pauseCall() {
            if calls > 0, LoopDiagnostics.isMeasuring { loop.inbox.meter.pauseCall() }
        }

        private func resumeCall() {
            if calls > 0, LoopDiagnostics.isMeasuring { loop.inbox.meter.resumeCall() }
        }

        /// Runs a pass up to its wait, again if a handler has changed the mode.
        private func beginWait(_ core: Core) {
            repeat {
                if calls == 1, !isInNestedRun { enterNextMode(core) }
                let handled = core.beginPass(running, onlyFirst: false)
                // A host's loop within a handler may have prepared.
                suspend()
                guard !isEnding else { return }
                if next == nil || calls > 1 || isInNestedRun {
                    wait = core.beginWait(running, until: handled ? .min : .max, unlessEmptied: false)
                }
            } while next != nil && calls == 1 && !isInNestedRun && !isEnding
            guard case .until(let time) = wait, time != .min, running.own.setTimerOfHost(time) else {
                return wakeHost()
            }
        }

        /// Whether a handler, or the host's own code, runs the loop.
        private var isInNestedRun: Bool { loop.inbox.activationCount != depth }

        private func enterNextMode(_ core: Core) {
            guard let next = next.take() else { return }
            suspend()
            core.notify(.exit, running)
            running.own.poller?.unnest(from: epoll!)
            running = next
            mode = next.own.mode
            loop.inbox.setMode(mode)
            core.notify(.entry, running)
        }

        private func finishIfIdle() {
            guard !isEnded, calls == 0, !isInNestedRun else { return }
            defer { retained = nil }
            suspend()
            isEnded = true
            epoll = nil
            let core = loop.core
            core.hosting = outerHosting
            core.notify(.exit, running)
            loop.inbox.endActivation(outer)
            outerHosting?.resume()
            endHandler.take()?()
        }

        private func wakeHost() {
            if let counter = loop.core.waker?.counter { addOne(toEventCounter: counter) }
        }

        private func requireCurrent(_ call: StaticString) -> Core {
            loop.requireCurrent("\(call) must be called")
            return loop.core
        }
    }
}

extension RunLoop.Core {
    /// Makes `epoll` readable while the poller of `mode` has something to report.
    fileprivate func nest(
        _ mode: RunLoop.Mode, in epoll: borrowing OwnedDescriptor
    ) throws(IOError) -> RunLoop.RunningMode {
        require(
            mode != .common, "A run loop cannot run in RunLoop.Mode.common: name one of the common modes.")
        try attempt(.start, "hosting of the \(inbox.loopName)") { () throws(Errno) in
            try poller(for: state(of: mode)).nest(in: epoll)
        }
        let running = running(mode)
        noteRun(in: running.own)
        return running
    }
}
