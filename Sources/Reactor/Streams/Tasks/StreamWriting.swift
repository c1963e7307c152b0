public import SystemPackage

extension OutputStream {
    /// Writes all of `bytes`, and waits for room as often as necessary without blocking the thread.
    ///
    /// The asynchronous form of ``write(_:)-(RawSpan)``. The stream is opened if it is not. Accepted bytes are
    /// sent though the task is cancelled afterwards; ``flush(timeout:)`` waits for that.
    ///
    /// - Parameters:
    ///   - bytes: Borrowed until this returns.
    ///   - accepted: Set to the number of bytes that the stream has accepted, also if this throws.
    ///   - timeout: How long to wait for all of them to be accepted; nil for no limit.
    /// - Throws: ``IOError``; `Errno.noSpace` if a fixed buffer is full, `Errno.brokenPipe` if the peer or the
    ///   reader of the bound pair reads no more, `Errno.resourceBusy` if another task is writing the stream.
    ///   `CancellationError`.
    /// - Precondition: The stream has no delegate.
    nonisolated(nonsending) public func writeAll(
        _ bytes: RawSpan, accepted: inout Int, timeout: Duration? = nil
    ) async throws {
        accepted = 0
        let use = try StreamUse(self, timeout: timeout)
        try Task.checkCancellation()
        while accepted < bytes.byteCount {
            let rest = bytes.extracting(droppingFirst: accepted)
            accepted += try await use.next(isolation: #isolation) { try engine.writeIfReady(rest) }
        }
    }

    /// Writes all of `bytes`; see ``writeAll(_:accepted:timeout:)-(RawSpan,_,_)``.
    nonisolated(nonsending) public func writeAll(
        _ bytes: [UInt8], accepted: inout Int, timeout: Duration? = nil
    ) async throws {
        try await writeAll(unsafe bytes.span.bytes, accepted: &accepted, timeout: timeout)
    }

    /// Writes all of `bytes`; see ``writeAll(_:accepted:timeout:)-(RawSpan,_,_)``.
    nonisolated(nonsending) public func writeAll(_ bytes: RawSpan, timeout: Duration? = nil) async throws {
        var accepted = 0
        try await writeAll(bytes, accepted: &accepted, timeout: timeout)
    }

    /// Writes all of `bytes`; see ``writeAll(_:accepted:timeout:)-(RawSpan,_,_)``.
    nonisolated(nonsending) public func writeAll(_ bytes: [UInt8], timeout: Duration? = nil) async throws {
        try await writeAll(unsafe bytes.span.bytes, timeout: timeout)
    }

    /// Writes all of `text` as UTF-8; see ``writeAll(_:accepted:timeout:)-(RawSpan,_,_)``.
    nonisolated(nonsending) public func writeAll(_ text: String, timeout: Duration? = nil) async throws {
        try await writeAll(Array(text.utf8), timeout: timeout)
    }

    /// Writes bytes of a file, and waits for room as often as necessary without blocking the thread.
    ///
    /// The asynchronous form of ``write(contentsOf:range:)``, which says how the bytes are sent.
    ///
    /// - Parameters:
    ///   - file: A descriptor of a file that can be read at any offset. Its own offset stays.
    ///   - range: The offsets of the bytes.
    ///   - accepted: Set to the number of bytes that the stream has accepted, also if this throws.
    ///   - timeout: How long to wait for all of them to be accepted; nil for no limit.
    /// - Throws: As ``writeAll(_:accepted:timeout:)-(RawSpan,_,_)``; ``IOError`` that names the file if reading fails, and with
    ///   `Errno.noData` if it ends before the range does. The stream continues then.
    /// - Precondition: As there; and the range does not begin below 0.
    nonisolated(nonsending) public func writeAll(
        contentsOf file: FileDescriptor, range: Range<Int>, accepted: inout Int, timeout: Duration? = nil
    ) async throws {
        accepted = 0
        let use = try StreamUse(self, timeout: timeout)
        try Task.checkCancellation()
        while accepted < range.count {
            let rest = FilePart(file, range.dropFirst(accepted))
            accepted += try await use.next(isolation: #isolation) { try engine.writeIfReady(rest) }
        }
    }

    /// Writes bytes of a file; see ``writeAll(contentsOf:range:accepted:timeout:)``.
    nonisolated(nonsending) public func writeAll(
        contentsOf file: FileDescriptor, range: Range<Int>, timeout: Duration? = nil
    ) async throws {
        var accepted = 0
        try await writeAll(contentsOf: file, range: range, accepted: &accepted, timeout: timeout)
    }

    /// Waits until the kernel has taken all accepted bytes: those in a write buffer, and those of a file.
    ///
    /// Opens the stream if it is not open, and waits for that.
    ///
    /// - Parameter timeout: How long to wait; nil for no limit.
    /// - Throws: ``IOError``; `Errno.resourceBusy` if another task is writing the stream. `CancellationError`.
    /// - Precondition: As for ``writeAll(_:accepted:timeout:)-(RawSpan,_,_)``.
    nonisolated(nonsending) public func flush(timeout: Duration? = nil) async throws {
        let use = try StreamUse(self, timeout: timeout)
        try await use.flush(isolation: #isolation)
    }

    /// Waits until the kernel has taken all accepted bytes, and ends the output: a socket's while reading continues, as
    /// ``shutDown()`` does; another stream is closed.
    ///
    /// - Parameter timeout: How long to wait for the bytes; nil for no limit. After it the output continues.
    /// - Throws: ``IOError``; `Errno.resourceBusy` if another task is writing it. `CancellationError`.
    /// - Precondition: As for ``writeAll(_:accepted:timeout:)-(RawSpan,_,_)``.
    nonisolated(nonsending) public func finish(timeout: Duration? = nil) async throws {
        let use = try StreamUse(self, timeout: timeout)
        try await use.flush(isolation: #isolation)
        do throws(Errno) { try engine.shutDown() } catch .notSocket {
            close()
        } catch {
            throw streamError ?? engine.failure(error)
        }
    }
}

extension OutputStream {
    /// Waits until the stream is open, and opens it if nothing has.
    nonisolated(nonsending) func waitUntilOpen(timeout: Duration?) async throws {
        let use = try StreamUse(self, timeout: timeout)
        try await use.waitUntilOpen(isolation: #isolation)
    }
}

extension StreamUse {
    fileprivate func flush(isolation: isolated (any Actor)?) async throws {
        try await waitUntilOpen(isolation: isolation)
        var callback: FlushCallback?
        defer { callback?.cancel() }
        let engine = stream.engine
        try await next(
            isolation: isolation,
            preparing: { delegate in
                if callback?.isWaiting ?? false { return }
                let new = FlushCallback { delegate.unparkTaskLater() }
                callback = new
                engine.backend.whenFlushed(new)
            }, { try engine.isFlushed() ? () : nil })
    }
}
