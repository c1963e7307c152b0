/// Calls a closure on a run loop's thread when a child process has ended.
///
/// The closure is called once, and then the source is cancelled. It is called and released on the loop's thread, and may
/// capture anything. The child's last output may still wait in its streams.
///
/// A source and its loop belong to one thread; while it is in a loop, every method traps on another. Any number of sources, on
/// any number of loops, may wait for the same process. In async code, use ``RunLoop/termination(of:timeout:inModes:)``.
///
/// ```swift
/// let child = try ChildProcess.spawn(.init("make", ["all"]))
/// let source = ProcessSource(child.process) { _, termination in
///     print(termination.reason)
/// }
/// try RunLoop.current.add(source, forMode: .default)
/// ```
public final class ProcessSource: EventSource {
    /// The process.
    public let process: ChildProcess
    private var handler: ((ProcessSource, ChildProcess.Termination) -> Void)?
    private var pauses = ChildProcess.pausesOfCollecting

    /// Creates a source, which does nothing until it is added to a loop.
    ///
    /// - Parameters:
    ///   - process: The process to wait for, which may have ended already.
    ///   - handler: Called with the source and how the process has ended.
    public init(
        _ process: ChildProcess, handler: @escaping (ProcessSource, ChildProcess.Termination) -> Void
    ) {
        (self.process, self.handler) = (process, handler)
        super.init(process.descriptor, for: .readable)
    }

    override var summary: String { "\(process)\(isValid ? "" : " (cancelled)")" }

    override var subject: String { process.subject }

    override var noun: String { "source of process \(process.processIdentifier)" }

    override var kind: String { "source of a process" }

    override var silence: String { "the process is running" }

    override func serve(_ readiness: Readiness) -> Bool {
        guard let termination = process.termination else {
            // The pidfd is readable, and stays so.
            pause(for: pauses.nextBound())
            return false
        }
        handler?(self, termination)
        cancel()
        return true
    }

    override func releaseResources() {
        let handler = handler.take()
        withExtendedLifetime(handler) {}
    }
}

extension ChildProcess {
    /// The pauses after which a process that has ended and could not be collected is looked at again. A process that
    /// traces it, such as a debugger, has its end first.
    static let pausesOfCollecting = Backoff(first: .milliseconds(5), limit: .milliseconds(100))
}
