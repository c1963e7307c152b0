import Synchronization

extension RunLoop {
    /// Runs `block` on this loop's thread, in a pass in one of `modes`, and wakes a sleeping loop. May be called from any
    /// thread.
    ///
    /// Blocks run in the order in which they were posted; those for other modes keep their place. A nested activation runs
    /// blocks that were posted since, but not the rest of the batch that is in progress. A pass runs blocks several
    /// times; a block that a block posts runs the next time. A block keeps a mode from being empty only until an activation
    /// begins, and does not end one.
    ///
    /// - Parameters:
    ///   - modes: The modes to run in; ``Mode/common`` stands for all common modes. If empty, the block is dropped. As in
    ///     Cocoa, the default is ``Mode/default`` for blocks, and ``Mode/common`` for ``performAndWait(inModes:file:line:_:)``,
    ///     whose caller waits.
    ///   - block: Runs once; released without having run if the loop's thread ends before.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    public func perform(
        inModes modes: [Mode] = [.default], file: StaticString = #fileID, line: UInt = #line,
        _ block: @escaping @Sendable () -> Void
    ) {
        post(block, ModeSet(modes), isSource: false, file, line)
    }

    /// Runs `block` on this loop's thread as a source: it makes `run(mode:before:)` return. May be called from any thread.
    ///
    /// Cocoa's `perform(_:on:with:waitUntilDone:modes:)` without waiting.
    /// - Parameters:
    ///   - modes: The modes to run in. If empty, the block is dropped.
    ///   - block: Runs once, in the order of posting, never inside this call.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    package func performAsSource(
        inModes modes: [Mode] = [.common], file: StaticString = #fileID, line: UInt = #line,
        _ block: @escaping @Sendable () -> Void
    ) {
        post(block, ModeSet(modes), isSource: true, file, line)
    }

    /// Runs `block` on this loop's thread as a source, and waits until it has run.
    ///
    /// On the loop's own thread the block runs at once, whatever the mode. On another thread this waits until the loop runs
    /// in one of `modes`: forever, if it never does.
    /// - Returns: What `block` returns.
    /// - Throws: What `block` throws.
    /// - Precondition: There is at least one mode. The loop's thread does not end before the block has run.
    @available(*, noasync, message: "await a function of an actor that has the loop's executor")
    public func performAndWait<Result: Sendable, Failure: Error>(
        inModes modes: [Mode] = [.common], file: StaticString = #fileID, line: UInt = #line,
        _ block: @escaping @Sendable () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        if isCurrent { return try block() }
        require(
            !modes.isEmpty,
            "RunLoop.performAndWait needs a mode: a block in no mode never runs, and the call would wait forever."
        )
        let result = Promise<Swift.Result<Result, Failure>?>()
        post(AwaitedBlock(block, result).call, ModeSet(modes), isSource: true, file, line)
        let answer = Self.noteWait("in RunLoop.performAndWait, waiting for the \(name)") { result.wait() }
        guard let answer else {
            fatalError(
                "RunLoop.performAndWait: the loop's thread has ended without running the block: \(name)."
            )
        }
        return try answer.get()
    }

    /// Runs `block` on the calling thread's loop, which must be this one, once `delay` has passed.
    ///
    /// It is a timer: it keeps the modes from being empty and does not make `run(mode:before:)` return. Blocks with the same
    /// date run in the order of the calls. The closure stays on this thread, so it may capture what is not `Sendable`.
    ///
    /// - Parameters:
    ///   - delay: Time from now; zero or less means the next pass, never before this returns.
    ///   - modes: The modes to run in. If empty, the block is dropped.
    ///   - block: Runs once, unless the token is invalidated before.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    /// - Returns: The token: ``Timer/invalidate()`` cancels.
    /// - Precondition: Called on the loop's thread.
    @discardableResult
    package func perform(
        after delay: Duration, inModes modes: [Mode] = [.default], file: StaticString = #fileID,
        line: UInt = #line, _ block: @escaping () -> Void
    ) -> Timer {
        requireCurrent("RunLoop.perform(after:inModes:_:) must be called")
        let timer = Timer.scheduled(
            delay: delay.wholeNanoseconds, period: 0, modes.first, .zero
        ) { _ in block() }
        if LoopDiagnostics.isReporting { timer.setName(nil, file, line) }
        for mode in modes.dropFirst() { add(timer, forMode: mode) }
        return timer
    }

    /// Runs `block` at the start of the next pass in one of `modes`, ordered among other such blocks.
    ///
    /// Blocks of a lower order run first, those of equal order in the order of the calls. As with
    /// ``perform(inModes:file:line:_:)``, a block keeps a mode from being empty only until an activation begins. The closure
    /// stays on this thread, so it may capture what is not `Sendable`.
    ///
    /// - Parameters:
    ///   - order: The place among the blocks of a pass, and among the observers of
    ///     ``Activities/beforeTimers``.
    ///   - modes: The modes to run in. If empty, the block is dropped.
    ///   - block: Runs once, unless the token is invalidated before.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    /// - Returns: The token: ``Observer/invalidate()`` cancels.
    /// - Precondition: Called on the loop's thread.
    @discardableResult
    public func perform(
        order: Int, inModes modes: [Mode] = [.default], file: StaticString = #fileID, line: UInt = #line,
        _ block: @escaping () -> Void
    ) -> Observer {
        let token = Observer(
            for: .beforeTimers, repeats: false, order: order, file: file, line: line
        ) { _, _ in block() }
        token.isBlock = true
        for mode in modes { add(token, forMode: mode) }
        // The caller may be an observer of the wait.
        wakeUp()
        return token
    }

    @inline(__always)
    private func post(
        _ block: @escaping @Sendable () -> Void, _ modes: ModeSet, isSource: Bool, _ file: StaticString,
        _ line: UInt
    ) {
        requireNotOfParent()
        guard !modes.isEmpty else { return }
        if LoopDiagnostics.isReporting { return inbox.post(block, modes, isSource: isSource, file, line) }
        inbox.post(PostedBlock(modes: modes, isSource: isSource, body: block))
    }
}

/// A block that a thread waits for. Its deinitializer ends the wait if the block has not run.
private final class AwaitedBlock<Result: Sendable, Failure: Error>: Sendable {
    private let body: @Sendable () throws(Failure) -> Result
    private let result: Promise<Swift.Result<Result, Failure>?>

    init(
        _ body: @escaping @Sendable () throws(Failure) -> Result,
        _ result: Promise<Swift.Result<Result, Failure>?>
    ) {
        self.body = body
        self.result = result
    }

    deinit { result.set(nil) }

    func call() {
        do throws(Failure) { result.set(.success(try body())) } catch { result.set(.failure(error)) }
    }
}

// MARK: - What a callback waits for

extension RunLoop {
    /// Calls `body`, which may wait without the loop. In debug mode, lets reports and explanations say what the current
    /// callback is blocked on. A time that a test has replaced runs meanwhile.
    ///
    /// - Parameter wait: A clause: "in OutputStream.write, waiting for …".
    package static func noteWait<Result: ~Copyable, Failure: Error>(
        _ wait: @autoclosure () -> String, _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        guard LoopDiagnostics.notesWaits else { return try body() }
        return try note(wait(), during: body)
    }

    private static func note<Result: ~Copyable, Failure: Error>(
        _ wait: String, during body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let (meter, time) = (existing?.inbox.meter, currentTimeSource)
        meter?.noteWait(wait)
        time?.beginBlocking()
        defer {
            time?.endBlocking()
            meter?.noteWait(nil)
        }
        return try body()
    }
}
