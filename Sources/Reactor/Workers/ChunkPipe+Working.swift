import Synchronization

// The worker's side, and what others say to both.

extension ChunkPipe {
    /// What the worker has to do next.
    enum Turn {
        case process(Chunk)
        case finish((any Error)?)
        /// Nothing until more comes in.
        case rest
    }

    /// Makes the worker busy. False if it came too late.
    func beginWork() -> Bool {
        state.withLock { state in
            guard state.worker == .called else { return false }
            state.worker = .busy
            return true
        }
    }

    /// What to do next.
    func nextTurn() -> Turn {
        state.withLock { state in
            if !state.isSuspended {
                if let chunk = state.full.popFirst() { return .process(chunk) }
                if state.isEnded { return .finish(state.fault) }
            }
            state.worker = .idle
            return .rest
        }
    }

    /// Lets others on the queue before the next turn: true if the worker has to be started again, false if it has been
    /// cancelled and need not wait for its turn.
    func interruptWork() -> Bool {
        state.withLock { state in
            if !state.isCancelled { state.worker = .called }
            return !state.isCancelled
        }
    }

    /// Takes back a chunk that has been processed; true if the reader has to be started.
    func giveBack(_ chunk: Chunk) -> Bool {
        let isKept = limits.budget == nil
        if !isKept { chunk.free() }
        return state.withLock { state in
            if isKept { state.free.append(chunk) } else { state.made -= 1 }
            let unused = limits.chunkCount - state.made + state.free.count
            let areEnoughFree = unused * 2 >= limits.chunkCount
            return state.isReaderIdle && state.mayRead && state.ticket == nil && areEnoughFree
        }
    }

    // MARK: Suspension

    var isSuspended: Bool { state.withLock { $0.isSuspended } }

    /// Has neither side begin anything.
    func suspend() {
        let bells = state.withLock { state in
            guard !state.isCancelled else { return [Bell]() }
            state.isSuspended = true
            return leaveLine(&state)
        }
        bells.ring()
    }

    /// Lets both sides go on: who has to be started.
    func resume() -> (worker: Bool, reader: Bool) {
        state.withLock { state in
            guard state.isSuspended else { return (false, false) }
            state.isSuspended = false
            let hasWork = !state.full.isEmpty || state.isEnded
            return (hasWork && state.callWorker(), state.isReaderIdle && !state.isEnded)
        }
    }

    // MARK: The end

    /// Drops what has not been processed. True if the worker is not at work, and now never will be: then the
    /// caller ends the hand-off in its place, which need not wait for a queue that others hold up.
    func cancel() -> Bool {
        var dropped = ChunkQueue()
        let (isAlone, bells) = state.withLock { state in
            swap(&dropped, &state.full)
            (state.isEnded, state.isCancelled, state.isSuspended, state.fault) = (true, true, false, nil)
            let isAlone = state.worker == .idle || state.worker == .called
            if isAlone { state.worker = .gone }
            return (isAlone, leaveLine(&state))
        }
        bells.ring()
        return isAlone
    }

    /// Lets go of the chunks, when the worker will not work again.
    func close() {
        var dropped = ChunkQueue()
        let bells = state.withLock { state in
            swap(&dropped, &state.full)
            (state.isEnded, state.worker, state.free) = (true, .gone, [])
            return leaveLine(&state)
        }
        bells.ring()
    }
}
