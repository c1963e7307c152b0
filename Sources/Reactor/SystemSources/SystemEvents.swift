import SystemPackage

extension RunLoop {
    /// Waits until a child process has ended.
    ///
    /// A process whose output is a stream that no code reads does not end once the pipe is full.
    ///
    /// ```swift
    /// let termination = try await RunLoop.main.termination(of: child.process, timeout: .seconds(10))
    /// ```
    ///
    /// From any thread. Any number of tasks may wait for the same process, which a cancelled wait does not
    /// affect.
    ///
    /// - Parameters:
    ///   - process: The process.
    ///   - timeout: How long to wait; nil for no limit.
    ///   - modes: Where the loop waits: the common modes unless others are named.
    /// - Returns: How the process has ended.
    /// - Throws: ``IOError`` with ``IOError/Reason/waitTimedOut``, with `Errno.badFileDescriptor` once the loop's thread has
    ///   ended, or with an error of epoll_ctl(2); `CancellationError`.
    nonisolated(nonsending) public func termination(
        of process: ChildProcess, timeout: Duration? = nil, inModes modes: [Mode] = [.common]
    ) async throws -> ChildProcess.Termination {
        let deadline = timeout.deadline(on: self)
        let descriptor = FileDescriptor(rawValue: process.descriptor)
        let subscription = EventSubscription(
            on: self, inModes: modes, watching: descriptor, for: .readable,
            ended: { withExtendedLifetime(process) {} })
        defer { subscription.end() }
        var pauses = ChildProcess.pausesOfCollecting
        do throws(Errno) {
            while true {
                if let termination = process.termination { return termination }
                try await subscription.wait(until: deadline)
                if let termination = process.termination { return termination }
                if let deadline, now >= deadline { throw .timedOut }
                try await DispatchWorkers.sleep(for: pauses.nextBound())
            }
        } catch .canceled {
            throw CancellationError()
        } catch {
            throw IOError(.watch, process.subject, .endOfWait(error))
        }
    }
}

// MARK: - Sequences

extension RunLoop {
    /// The changes of files and folders, as a ``FileWatcher`` reports them, from now on.
    ///
    /// ```swift
    /// for try await event in try loop.fileEvents(at: ["/etc"], recursively: true) { print(event) }
    /// ```
    ///
    /// While no event is awaited none is read; when too many wait in the kernel, or once a large tree is watched,
    /// ``FileWatcher/Event/overflowed`` is an element. From any thread.
    ///
    /// - Parameters:
    ///   - paths: Files and folders.
    ///   - recursively: Whether folders below are watched, too.
    ///   - modes: Where the loop serves them: the common modes unless others are named.
    /// - Throws: As ``FileWatcher/watch(_:recursively:)``. The sequence throws what epoll_ctl(2) does.
    public func fileEvents(
        at paths: [FilePath], recursively: Bool = false, inModes modes: [Mode] = [.common]
    ) throws(IOError) -> Events<FileWatcher.Event, any Error> {
        try Events(on: self, inModes: modes) { continuation throws(IOError) in
            let watcher = try FileWatcher { continuation.yield($1, from: $0) }
            for path in paths { try watcher.watch(path, recursively: recursively) }
            return ([watcher], nil)
        }
    }

    /// The firings of a ``ClockTimer``, and the news that the wall clock was set.
    ///
    /// Firings that come while none is awaited are one. From any thread.
    ///
    /// - Parameters:
    ///   - clock: The clock.
    ///   - date: The first firing, on that clock.
    ///   - interval: The time between firings; nil for one.
    ///   - modes: Where the loop serves the timer: the common modes unless others are named.
    /// - Throws: As ``ClockTimer/init(_:at:every:handler:)``. The sequence throws what epoll_ctl(2) does.
    public func firings(
        of clock: ClockTimer.Clock, at date: ClockTimer.Instant, every interval: Duration? = nil,
        inModes modes: [Mode] = [.common]
    ) throws(IOError) -> Events<ClockTimer.Event, any Error> {
        try Events(on: self, inModes: modes) { continuation throws(IOError) in
            ([try ClockTimer(clock, at: date, every: interval) { continuation.yield($1, from: $0) }], nil)
        }
    }

    /// An element each time that the system is short of a resource, as a ``PressureSource`` reports it.
    ///
    /// From any thread.
    ///
    /// - Parameters:
    ///   - path: The kernel's file, such as `/proc/pressure/memory`.
    ///   - stall: How much time must be lost within a window.
    ///   - window: The window.
    ///   - byAll: Whether only time counts in which all tasks were stalled.
    ///   - modes: Where the loop serves the source: the common modes unless others are named.
    /// - Throws: As ``PressureSource/init(at:stalledFor:within:byAll:handler:)``. The sequence throws what epoll_ctl(2) does,
    ///   and the error that ends the source.
    public func pressure(
        at path: FilePath, stalledFor stall: Duration, within window: Duration, byAll: Bool = false,
        inModes modes: [Mode] = [.common]
    ) throws(IOError) -> Events<Void, any Error> {
        try Events(on: self, inModes: modes) { continuation throws(IOError) in
            let source = try PressureSource(at: path, stalledFor: stall, within: window, byAll: byAll) {
                guard case .errorOccurred(let error) = $1 else { return continuation.yield((), from: $0) }
                continuation.finish(throwing: error.errno ?? .ioError)
            }
            return ([source], nil)
        }
    }
}
