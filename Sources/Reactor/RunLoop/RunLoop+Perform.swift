import Synchronization

extension RunLoop {
    /// Runs `block` on this loop's thread, in a pass in one of `modes`; from any thread, and a sleeping loop
    /// wakes for it.
    ///
    /// Blocks run in the order in which they were posted; those of other modes wait without losing their
    /// place. A block that is posted by a block runs in the next sweep. A block keeps a mode from being empty
    /// only until an activation begins, and does not end one.
    ///
    /// - Parameters:
    ///   - modes: Where to run; with ``Mode/common``, in whatever is a common mode then. None at all: the
    ///     block is dropped.
    ///   - block: Run once. If the loop's thread ends before, it is let go of without having run.
    public func perform(inModes modes: [Mode] = [.default], _ block: @escaping @Sendable () -> Void) {
        post(block, ModeSet(modes), isSource: false)
    }

    /// Runs `block` on this loop's thread as a source: it makes `run(mode:before:)` return; from any thread.
    ///
    /// Cocoa's `perform(_:on:with:waitUntilDone:modes:)` without waiting.
    /// - Parameters:
    ///   - modes: Where to run; the common modes unless others are named.
    ///   - block: Run once, in the order of posting, never at once.
    public func performAsSource(inModes modes: [Mode] = [.common], _ block: @escaping @Sendable () -> Void) {
        post(block, ModeSet(modes), isSource: true)
    }

    /// Runs `block` on this loop's thread as a source, and waits until it has run.
    ///
    /// On the loop's own thread it runs at once, whatever the mode. From another thread it waits for as long
    /// as the loop does not run in one of `modes`: if it never does, forever.
    /// - Returns: What `block` returns.
    /// - Throws: What `block` throws.
    public func performAndWait<Result: Sendable, Failure: Error>(
        inModes modes: [Mode] = [.common], _ block: @escaping @Sendable () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        if isCurrent { return try block() }
        precondition(!modes.isEmpty, "waiting for a block that runs in no mode would never end")
        let answer = Answer<Swift.Result<Result, Failure>>()
        performAsSource(inModes: modes) {
            do throws(Failure) { answer.give(.success(try block())) } catch { answer.give(.failure(error)) }
        }
        return try answer.wait().get()
    }

    /// Runs `block` on the calling thread's loop, which must be this one, once `delay` has passed.
    ///
    /// It is a timer: it keeps the modes from being empty, does not make `run(mode:before:)` return, and
    /// requests with the same date run in the order in which they were made. The closure belongs to this
    /// thread and may capture what it likes.
    ///
    /// - Parameters:
    ///   - delay: Time from now; zero or less means the next pass, never at once.
    ///   - modes: Where to run.
    ///   - block: Run once, unless the token is invalidated before.
    /// - Returns: The token: ``Timer/invalidate()`` cancels.
    /// - Precondition: Called on the loop's thread.
    @discardableResult
    public func perform(
        after delay: Duration, inModes modes: [Mode] = [.default], _ block: @escaping () -> Void
    ) -> Timer {
        assertNotOfParent()
        precondition(isCurrent, "a delayed block without @Sendable is given to the calling thread's own loop")
        let timer = Timer.scheduled(
            delay: delay.wholeNanoseconds, period: 0, modes.first, .zero
        ) { _ in block() }
        for mode in modes.dropFirst() { add(timer, forMode: mode) }
        return timer
    }

    /// Runs `block` at the start of the next pass in one of `modes`, before or after other such blocks.
    ///
    /// Blocks of a lower order run first, those of the same order as they were asked for. As with
    /// ``perform(inModes:_:)``, a block keeps a mode from being empty only until an activation begins. The
    /// closure belongs to this thread and may capture what it likes.
    ///
    /// - Parameters:
    ///   - order: The place among the blocks of a pass, and among the observers of
    ///     ``Activities/beforeTimers``.
    ///   - modes: Where to run.
    ///   - block: Run once, unless the token is invalidated before.
    /// - Returns: The token: ``Observer/invalidate()`` cancels.
    /// - Precondition: Called on the loop's thread.
    @discardableResult
    public func perform(
        order: Int, inModes modes: [Mode] = [.default], _ block: @escaping () -> Void
    ) -> Observer {
        let token = Observer(for: .beforeTimers, repeats: false, order: order) { _, _ in block() }
        token.isBlock = true
        for mode in modes { add(token, forMode: mode) }
        // An observer of the wait may have asked for it.
        wakeUp()
        return token
    }

    private func post(_ block: @escaping @Sendable () -> Void, _ modes: ModeSet, isSource: Bool) {
        assertNotOfParent()
        guard !modes.isEmpty else { return }
        inbox.post(PostedBlock(modes: modes, isSource: isSource, body: block))
    }
}
