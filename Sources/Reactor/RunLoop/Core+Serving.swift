import Synchronization

// The phases of a pass.

extension RunLoop.Core {
    // MARK: Observers

    @inline(__always)
    func notify(_ activity: RunLoop.Activities, _ groups: RunLoop.Groups) {
        if groups.observedActivities.contains(activity) { callObservers(of: activity, groups) }
    }

    /// Calls the observers of one activity. The list is taken first: one that is added meanwhile waits for
    /// the next time.
    @inline(never)
    private func callObservers(of activity: RunLoop.Activities, _ groups: RunLoop.Groups) {
        var observers = groups.own.observers.inOrder()
        if !groups.common.observers.isEmpty {
            observers += groups.common.observers.inOrder()
            observers.sort { $0.precedes($1) }
        }
        for entry in observers where entry.observer.activities.contains(activity) {
            entry.observer.call(activity)
        }
    }

    // MARK: Blocks

    /// Runs the jobs, and the blocks that have been posted so far; true if one of them counts as a source.
    @inline(__always)
    func runBlocks(_ groups: RunLoop.Groups) -> Bool {
        collect()
        return groups.blockCount > 0 && runWaitingBlocks(groups)
    }

    @inline(never)
    private func runWaitingBlocks(_ groups: RunLoop.Groups) -> Bool {
        var handled = !waitingExecutors.isEmpty && runJobs(groups)
        guard groups.blockCount > 0 else { return handled }
        var batch: [BlockQueue.Entry] = []
        swap(&batch, &spareBatch)
        takeBlocks(groups, into: &batch)
        handled = run(&batch) || handled
        batch.removeAll(keepingCapacity: batch.capacity <= BlockQueue.keptCapacity)
        if spareBatch.capacity < batch.capacity { swap(&batch, &spareBatch) }
        return handled
    }

    /// Moves the blocks that wait in the groups' own queues, and in those that they share with other modes, to
    /// `batch`, in the order of posting.
    private func takeBlocks(_ groups: RunLoop.Groups, into batch: inout [BlockQueue.Entry]) {
        let count = groups.blockCount
        let own = groups.own.takeOwnBlocks(into: &batch)
        let common = groups.common.takeOwnBlocks(into: &batch)
        guard own + common < count else {
            if own > 0, common > 0 { batch.sort { $0.sequence < $1.sequence } }
            return
        }
        sharedBlocks.drain([groups.own.mode, groups.common.mode], into: &batch) { mode, count in
            state(of: mode).blockCount -= count
        }
        batch.sort { $0.sequence < $1.sequence }
    }

    private func run(_ batch: inout [BlockQueue.Entry]) -> Bool {
        var handled = false
        for index in batch.indices {
            guard let block = batch[index].body.take() else { continue }
            block()
            handled = handled || batch[index].isSource
        }
        return handled
    }

    // MARK: Signalled sources

    /// Serves the sources that were signalled before now, or the first of them; true if any was served.
    @inline(__always)
    func performSignalledSources(_ groups: RunLoop.Groups, onlyFirst: Bool) -> Bool {
        collect()
        return groups.haveSignals && performSources(groups, onlyFirst: onlyFirst)
    }

    @inline(never)
    private func performSources(_ groups: RunLoop.Groups, onlyFirst: Bool) -> Bool {
        let limit = Signal.next()
        var performed = false
        while let (source, signal) = nextSignalled(groups, before: limit) {
            guard source.perform(signal, in: self) else { continue }
            performed = true
            if onlyFirst { break }
        }
        return performed
    }

    private func nextSignalled(
        _ groups: RunLoop.Groups, before limit: Signal
    ) -> (RunLoop.Source, Signal)? {
        let own = groups.own.signals.first(before: limit)
        let common = groups.common.signals.first(before: limit)
        guard let first = own, let other = common else {
            return (own ?? common).map { ($0.source, $0.signal) }
        }
        let next = other.precedes(first) ? other : first
        return (next.source, next.signal)
    }

    // MARK: Event sources

    /// Serves what is ready, or the first of it; true if any handler was called.
    @inline(always)
    func serveReady(_ groups: RunLoop.Groups, onlyFirst: Bool) -> Bool {
        let ready = groups.ready
        guard !ready.isEmpty else { return false }
        let round = ready.beginRound()
        var handled = false
        while let watch = ready.takeFirst(before: round) {
            if ready.isLate(watch) { watch.confirm() }
            guard watch.serve() else { continue }
            handled = true
            if onlyFirst { break }
        }
        ready.hasLeftovers = ready.holds(before: round)
        return handled
    }
}
