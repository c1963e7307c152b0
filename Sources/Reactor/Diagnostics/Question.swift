// What another thread learns of a loop: the loop's own answer, or what a few atomics say.

extension RunLoop {
    /// The answer of the loop's thread to `question`: at once on that thread, else in the loop's next pass, for which a
    /// sleeping loop is woken.
    ///
    /// - Returns: Nil at once if the loop does not run, and after ``answerTimeout`` if it has not answered, because it is in a
    ///   callback. Two loops that ask each other both get that.
    func ask<Answer: Sendable>(_ question: @escaping @Sendable (Core) -> Answer?) -> Answer? {
        if isCurrent { return question(core) }
        guard currentMode != nil else { return nil }
        let answer = Promise<Answer?>()
        guard inbox.post({ core in answer.set(question(core)) }) else { return nil }
        return answer.wait(until: .now.advanced(by: Self.answerTimeout)) ?? nil
    }

    /// Much longer than a pass of a loop that is not stuck, and short for a person who waits.
    static var answerTimeout: Duration { .milliseconds(100) }
}

/// A question that waits for a loop.
struct WaitingWork: Sendable {
    /// How many blocks and executors wait for each set of modes.
    var counts: [ModeSet: Int]
    /// How many more wait for modes that only the loop's thread knows.
    var otherCount = 0
    /// Whether libdispatch's main queue has work that the loop serves in the common modes.
    var hasMainQueueWork = false
}

extension RunLoop.Core {
    var waitingWork: WaitingWork {
        WaitingWork(counts: waitingCounts, hasMainQueueWork: hasMainQueueWork)
    }

    /// How many blocks and executors wait for each set of modes.
    var waitingCounts: [ModeSet: Int] {
        let ordered = knownStates.flatMap { state in
            state.observers.inOrder().map(\.observer).filter { observer in
                observer.isBlock && observer.entries.first?.mode == state.mode
            }
        }
        let modes =
            blocks.blocks.map(\.modes) + waitingExecutors.map(\.modes) + ordered.map(\.entries.modes)
        return inbox.postedCounts.merging(modes.map { ($0, 1) }, uniquingKeysWith: +)
    }

    /// Whether libdispatch's main queue, which this loop serves, has work.
    var hasMainQueueWork: Bool { mainQueue.map { SystemCall.isReadable($0.number) } ?? false }
}

extension Inbox {
    /// As much of the loop's waiting work as any thread can read.
    var knownWork: WaitingWork { WaitingWork(counts: postedCounts, otherCount: meter.waiting.value) }
}
