import Synchronization

// The phases of a pass.

extension RunLoop.Core {
    // MARK: Observers

    @inline(__always)
    func notify(_ activity: RunLoop.Activities, _ groups: RunLoop.Groups) {
        let observed = groups.own.observedActivities.union(groups.common.observedActivities)
        if observed.contains(activity) { callObservers(of: activity, groups) }
    }

    /// Calls the observers of one activity. The list is taken first: one that is added meanwhile waits for
    /// the next time.
    @inline(never)
    private func callObservers(of activity: RunLoop.Activities, _ groups: RunLoop.Groups) {
        var observers = groups.own.observers
        if !groups.common.observers.isEmpty {
            observers += groups.common.observers
            observers.sort { ($0.observer.order, $0.sequence) < ($1.observer.order, $1.sequence) }
        }
        for (_, observer) in observers where observer.activities.contains(activity) {
            observer.call(activity)
        }
    }

    // MARK: Blocks

    /// Runs the blocks that have been posted so far; true if one of them counts as a source.
    @inline(__always)
    func runBlocks(_ groups: RunLoop.Groups) -> Bool {
        collect()
        return groups.haveBlocks && runWaitingBlocks(groups)
    }

    @inline(never)
    private func runWaitingBlocks(_ groups: RunLoop.Groups) -> Bool {
        var batch: [BlockQueue.Entry] = []
        swap(&batch, &spareBatch)
        let isMixed = !groups.own.blocks.entries.isEmpty && !groups.common.blocks.entries.isEmpty
        groups.own.blocks.drain(into: &batch)
        groups.common.blocks.drain(into: &batch)
        if isMixed { batch.sort { $0.sequence < $1.sequence } }
        let handled = run(&batch)
        batch.removeAll(keepingCapacity: batch.capacity <= BlockQueue.keptCapacity)
        if spareBatch.capacity < batch.capacity { swap(&batch, &spareBatch) }
        return handled
    }

    private func run(_ batch: inout [BlockQueue.Entry]) -> Bool {
        var handled = false
        for index in batch.indices {
            guard let block = batch[index].take() else { continue }
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
        return groups.haveSignals && performAgenda(groups, onlyFirst: onlyFirst)
    }

    @inline(never)
    private func performAgenda(_ groups: RunLoop.Groups, onlyFirst: Bool) -> Bool {
        groups.own.makeAgenda()
        groups.common.makeAgenda()
        let limit = nextSequence()
        var performed = false
        while let group = groupOfNextSource(groups), let (sequence, source) = group.agenda.popLast() {
            if sequence < limit, source.perform(home: home) {
                performed = true
                if onlyFirst { break }
            } else if source.isSignalled {
                group.signalled.append((sequence, source))
            }
        }
        return performed
    }

    private func groupOfNextSource(_ groups: RunLoop.Groups) -> ModeState? {
        guard let common = groups.common.agenda.last else {
            return groups.own.agenda.isEmpty ? nil : groups.own
        }
        guard let own = groups.own.agenda.last else { return groups.common }
        let ownIsFirst = (own.source.order, own.sequence) < (common.source.order, common.sequence)
        return ownIsFirst ? groups.own : groups.common
    }

    // MARK: Descriptors

    /// Serves what the kernel has told, or the first of it; true if any handler was called.
    @inline(always)
    func serveReady(_ groups: RunLoop.Groups, onlyFirst: Bool) -> Bool {
        guard let poller = groups.own.poller, !poller.ready.isEmpty else { return false }
        let round = poller.ready.beginRound()
        var handled = false
        while let watch = poller.ready.takeFirst(before: round) {
            if poller.ready.isLate(watch) { watch.confirm() }
            guard DescriptorSource.serve(watch) else { continue }
            handled = true
            if onlyFirst { break }
        }
        poller.hasLeftovers = poller.ready.holds(before: round)
        return handled
    }
}
