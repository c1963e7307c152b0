/// Why an asynchronous write has not done what it was called for.
public struct StreamWriteError: Error, Sendable {
    /// What has happened.
    public let reason: StreamError
    /// How many of the bytes the stream has accepted. It sends these.
    public let acceptedCount: Int
}

extension StreamWriteError: CustomStringConvertible {
    /// The reason, and the number of accepted bytes.
    public var description: String { "\(reason), after \(acceptedCount) bytes were accepted" }
}

extension OutputStream {
    /// Writes all of `bytes`, and waits for room as often as necessary without blocking the thread.
    ///
    /// The asynchronous form of ``write(_:)-(RawSpan)``. The stream is opened if it is not. Accepted bytes are
    /// sent though the task is cancelled afterwards; ``waitUntilSent(timeout:)`` waits for that.
    ///
    /// - Parameters:
    ///   - bytes: Borrowed until this returns.
    ///   - timeout: How long to wait for all of them to be accepted; nil for no limit.
    /// - Throws: ``StreamWriteError``, with the number of bytes that were accepted; its reason is
    ///   ``StreamError/ended`` if the stream's buffer is full, or its reader has closed the bound pair.
    /// - Precondition: No other task writes the stream, and it has no delegate.
    nonisolated(nonsending) public func writeAll(
        _ bytes: RawSpan, timeout: Duration? = nil
    ) async throws(StreamWriteError) {
        let use = StreamUse(self, timeout: timeout)
        var accepted = 0
        do throws(StreamError) {
            try use.checkCancellation()
            while accepted < bytes.byteCount {
                if let count = try engine.writeIfReady(bytes.extracting(droppingFirst: accepted)) {
                    accepted += count
                } else {
                    try await use.wait(isolation: #isolation)
                }
            }
        } catch {
            throw StreamWriteError(reason: error, acceptedCount: accepted)
        }
    }

    /// Writes all of `bytes`; see ``writeAll(_:timeout:)-(RawSpan,_)``.
    nonisolated(nonsending) public func writeAll(
        _ bytes: [UInt8], timeout: Duration? = nil
    ) async throws(StreamWriteError) {
        try await writeAll(unsafe bytes.span.bytes, timeout: timeout)
    }

    /// Writes all of `text` as UTF-8; see ``writeAll(_:timeout:)-(RawSpan,_)``.
    nonisolated(nonsending) public func writeAll(
        _ text: String, timeout: Duration? = nil
    ) async throws(StreamWriteError) {
        try await writeAll(Array(text.utf8), timeout: timeout)
    }

    /// Waits until the kernel has taken all accepted bytes: those in a write buffer, and those of a file.
    ///
    /// The asynchronous form of ``flush(until:)``. Opens the stream if it is not open, and waits for that.
    ///
    /// - Parameter timeout: How long to wait; nil for no limit.
    /// - Throws: ``StreamError``. The bytes are sent though the wait has ended.
    /// - Precondition: As for ``writeAll(_:timeout:)-(RawSpan,_)``.
    nonisolated(nonsending) public func waitUntilSent(timeout: Duration? = nil) async throws(StreamError) {
        let use = StreamUse(self, timeout: timeout)
        try await use.waitUntilSent(isolation: #isolation)
    }

    /// Waits until the kernel has taken all accepted bytes, and ends the output of a socket, while reading
    /// goes on: ``shutDown()``.
    ///
    /// - Parameter timeout: How long to wait for the bytes; nil for no limit. After it the output goes on.
    /// - Throws: ``StreamError``: ``StreamError/failed(_:)`` with `Errno.notSocket` for a stream that is not a
    ///   socket's.
    /// - Precondition: As for ``writeAll(_:timeout:)-(RawSpan,_)``.
    nonisolated(nonsending) public func finishWriting(timeout: Duration? = nil) async throws(StreamError) {
        let use = StreamUse(self, timeout: timeout)
        try await use.waitUntilSent(isolation: #isolation)
        do { try shutDown() } catch { throw .failed(error) }
    }
}

extension StreamUse {
    fileprivate func waitUntilSent(isolation: isolated (any Actor)?) async throws(StreamError) {
        try await waitUntilOpen(isolation: isolation)
        var isReported = false
        while try !stream.engine.isFlushed() {
            try await wait(isolation: isolation) { delegate in
                guard !isReported else { return }
                isReported = true
                self.stream.engine.backend.whenFlushed(Callback { delegate.wakeTaskLater() })
            }
        }
    }
}

// MARK: - Connecting

extension Stream {
    /// Connects to a host, given by name or as a numeric address, and waits until both streams are open.
    ///
    /// The asynchronous form of ``connection(toHost:port:)``, whose addresses race. Cancelling the task ends
    /// the attempt and closes its sockets.
    ///
    /// - Parameters:
    ///   - host: A name or an address.
    ///   - port: The port.
    ///   - timeout: How long resolving and connecting may take together; nil for ``connectTimeout``'s default.
    /// - Returns: The open streams.
    /// - Throws: ``StreamError``: ``StreamError/failed(_:)`` with an ``IOError`` or a ``ResolverError``.
    nonisolated(nonsending) public static func connect(
        toHost host: String, port: UInt16, timeout: Duration? = nil
    ) async throws(StreamError) -> (input: InputStream, output: OutputStream) {
        try await open(connection(toHost: host, port: port), timeout)
    }

    /// Connects to an IPv4, IPv6 or Unix-domain address; otherwise as ``connect(toHost:port:timeout:)``.
    nonisolated(nonsending) public static func connect(
        to address: SocketAddress, timeout: Duration? = nil
    ) async throws(StreamError) -> (input: InputStream, output: OutputStream) {
        try await open(connection(to: address), timeout)
    }

    nonisolated(nonsending) private static func open(
        _ streams: (input: InputStream, output: OutputStream), _ timeout: Duration?
    ) async throws(StreamError) -> (input: InputStream, output: OutputStream) {
        do throws(StreamError) {
            if let timeout {
                guard timeout > .zero else { throw .timedOut }
                streams.input.connectTimeout = timeout
            }
            let use = StreamUse(streams.input)
            try await use.waitUntilOpen(isolation: #isolation)
        } catch {
            streams.input.close()
            streams.output.close()
            throw error
        }
        streams.output.open()
        return streams
    }
}
