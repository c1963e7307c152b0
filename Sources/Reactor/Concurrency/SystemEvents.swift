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
    /// - Throws: ``IOError`` with `Errno.timedOut`, with `Errno.badFileDescriptor` once the loop's thread has
    ///   ended, or with an error of epoll_ctl(2); `CancellationError`.
    nonisolated(nonsending) public func termination(
        of process: ChildProcess, timeout: Duration? = nil, in modes: [Mode] = [.common]
    ) async throws -> ChildProcess.Termination {
        let deadline = timeout.deadline
        let descriptor = FileDescriptor(rawValue: process.descriptor)
        let waits = DescriptorWaits(for: .readable, of: descriptor, on: self, in: modes) {
            withExtendedLifetime(process) {}
        }
        defer { waits.end() }
        do throws(Errno) {
            while true {
                if let termination = process.termination { return termination }
                try await waits.wait(until: deadline)
            }
        } catch .canceled {
            throw CancellationError()
        } catch {
            throw IOError(.watch, "\(process)", error)
        }
    }
}
