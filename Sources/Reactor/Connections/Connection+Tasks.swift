public import SystemPackage

// MARK: - Connecting

extension Connection {
    /// Connects to a host, given by name or as a numeric address.
    ///
    /// Cancelling the task ends the attempt and closes its sockets.
    ///
    /// - Parameters:
    ///   - host: A name or an address.
    ///   - port: The port.
    ///   - options: Options of the socket.
    ///   - security: What protects the bytes; nil for plain text. The handshake is part of connecting.
    /// - Returns: The open connection.
    /// - Throws: ``IOError``; the error of `security`; `CancellationError`.
    nonisolated(nonsending) public static func connect(
        toHost host: String, port: UInt16, options: Options = Options(), security: Security? = nil
    ) async throws -> Connection {
        let connection = Connection(toHost: host, port: port, options: options, security: security)
        try await connection.open()
        return connection
    }

    /// Connects to an IPv4, IPv6 or Unix-domain address; otherwise as
    /// ``connect(toHost:port:options:security:)``.
    nonisolated(nonsending) public static func connect(
        to address: SocketAddress, options: Options = Options(), security: Security? = nil
    ) async throws -> Connection {
        let connection = Connection(to: address, options: options, security: security)
        try await connection.open()
        return connection
    }

    /// Opens the connection if necessary, and waits until it is open. Any number of tasks may wait.
    ///
    /// Reads and writes do that by themselves. An attempt that fails, or whose task is cancelled, closes the connection.
    ///
    /// - Throws: As ``connect(toHost:port:options:security:)``.
    nonisolated(nonsending) public func open() async throws {
        let (input, output) = (halves.input, halves.output)
        if input.engine.isOpen || input.streamStatus == .atEnd, output.streamStatus != .notOpen { return }
        do {
            if let use = try? StreamUse(input) {
                try await use.waitUntilOpen(isolation: #isolation)
                openHalves()
            } else {
                // A task that reads waits there.
                try await inTurn(nil) { _ in try await output.waitUntilOpen(timeout: nil) }
            }
        } catch {
            close()
            throw error
        }
    }

    /// Opens both halves. Those of an existing socket are open then.
    func openHalves() {
        halves.input.open()
        halves.output.open()
        if halves.output.streamStatus == .opening { halves.output.engine.refresh() }
    }
}

// MARK: - Reading

extension Connection {
    /// Reads the bytes that are there, and waits for the first one without blocking the thread.
    ///
    /// - Parameters:
    ///   - count: The maximum number of bytes; at least one.
    ///   - timeout: How long to wait; nil for no limit.
    /// - Returns: At least one byte; nil at the end.
    /// - Throws: ``IOError``, `Errno.resourceBusy` while another task reads the connection or iterates over it; the error of
    ///   opening; `CancellationError`.
    /// - Precondition: The connection has no delegate.
    nonisolated(nonsending) public func read(
        upTo count: Int = InputStream.defaultChunkSize, timeout: Duration? = nil
    ) async throws -> [UInt8]? {
        openOutput()
        return try await halves.input.readChunk(upTo: count, timeout: timeout)
    }

    /// Appends the bytes that are there to `buffer`, up to `count`, and waits for the first one; otherwise as
    /// ``read(upTo:timeout:)``.
    ///
    /// A buffer whose capacity is kept is not allocated again for each read.
    ///
    /// - Returns: The number of bytes; 0 at the end.
    nonisolated(nonsending) public func read(
        into buffer: inout [UInt8], upTo count: Int = InputStream.defaultChunkSize, timeout: Duration? = nil
    ) async throws -> Int {
        openOutput()
        return try await halves.input.read(into: &buffer, upTo: count, timeout: timeout)
    }

    /// Reads exactly `count` bytes; nil if the connection ends before any. As ``InputStream/read(exactly:timeout:)``.
    nonisolated(nonsending) public func read(exactly count: Int, timeout: Duration? = nil) async throws
        -> [UInt8]?
    {
        openOutput()
        return try await halves.input.read(exactly: count, timeout: timeout)
    }

    /// Reads all bytes up to the peer's end; as ``InputStream/readToEnd(limit:timeout:)``.
    nonisolated(nonsending) public func readToEnd(limit: Int, timeout: Duration? = nil) async throws
        -> [UInt8]
    {
        openOutput()
        return try await halves.input.readToEnd(limit: limit, timeout: timeout)
    }

    /// Waits until there are bytes to read, and leaves them to the next read: false at the end. As
    /// ``InputStream/waitForBytes(timeout:)``.
    ///
    /// ```swift
    /// guard try await connection.waitForBytes(timeout: .seconds(60)) else { return }  // idle
    /// let head = try await connection.read(until: Array("\r\n\r\n".utf8), timeout: .seconds(5))
    /// ```
    nonisolated(nonsending) public func waitForBytes(timeout: Duration? = nil) async throws -> Bool {
        openOutput()
        return try await halves.input.waitForBytes(timeout: timeout)
    }

    /// Reads up to and including `delimiter`, and returns the bytes before it; as
    /// ``InputStream/read(until:limit:timeout:)``.
    nonisolated(nonsending) public func read(
        until delimiter: [UInt8], limit: Int = LineFramer.defaultLimit, timeout: Duration? = nil
    ) async throws -> [UInt8]? {
        openOutput()
        return try await halves.input.read(until: delimiter, limit: limit, timeout: timeout)
    }

    /// The bytes from the peer in chunks, for `for try await`; as ``InputStream/chunks``. Opens the connection.
    ///
    /// - Parameters:
    ///   - count: The maximum number of bytes of a chunk, at least one.
    ///   - timeout: How long each chunk may take to arrive; nil for no limit. After it the iteration throws ``IOError`` with
    ///     ``IOError/Reason/waitTimedOut``, and has ended. The connection is as before.
    public func chunks(
        upTo count: Int = InputStream.defaultChunkSize, timeout: Duration? = nil
    ) -> InputStream.Chunks {
        openOutput()
        return halves.input.chunks(upTo: count, timeout: timeout)
    }

    /// The lines from the peer as text, for `for try await`; as
    /// ``InputStream/lines(text:terminator:limit:overflow:timeout:shutdown:)``. Opens the connection.
    ///
    /// With a timeout, a peer that sends a line byte by byte has no more time than one that sends none.
    public func lines(
        text policy: TextPolicy = .repair, terminator: LineTerminator = .newline,
        limit: Int = LineFramer.defaultLimit, overflow: LineFramer.Overflow = .fail, timeout: Duration? = nil,
        shutdown: GracefulShutdown? = nil
    ) -> InputStream.Lines {
        openOutput()
        return halves.input.lines(
            text: policy, terminator: terminator, limit: limit, overflow: overflow, timeout: timeout,
            shutdown: shutdown)
    }

    /// The messages from the peer, as `framer` cuts them, for `for try await`; as
    /// ``InputStream/messages(_:timeout:shutdown:)``. Opens the connection.
    ///
    /// ```swift
    /// let framer = Framer.lengthPrefix(UInt32.self, limit: 65_536)
    /// for try await message in connection.messages(framer) {
    ///     try await connection.write(framer.frame(for: answer(message)))
    /// }
    /// ```
    public func messages(
        _ framer: Framer, timeout: Duration? = nil, shutdown: GracefulShutdown? = nil
    ) -> InputStream.Messages {
        openOutput()
        return halves.input.messages(framer, timeout: timeout, shutdown: shutdown)
    }

    /// Opens the output too, as a read alone opens the input only.
    private func openOutput() { halves.output.open() }
}

// MARK: - Writing

extension Connection {
    /// Writes all of `bytes`, after the writes that were called before, without blocking the thread.
    ///
    /// The bytes are accepted when this returns: they are sent, or the connection fails. If the task is cancelled, or the time
    /// is over, before any of them was accepted, nothing has happened. After some, the connection fails: the peer could not
    /// tell where the next message begins.
    ///
    /// - Parameters:
    ///   - bytes: The bytes.
    ///   - timeout: How long to wait for the turn and for room, together; nil for no limit.
    /// - Throws: ``IOError``, `Errno.brokenPipe` if the peer reads no more, or the error of opening; `CancellationError`.
    /// - Precondition: The connection has no delegate.
    nonisolated(nonsending) public func write(_ bytes: [UInt8], timeout: Duration? = nil) async throws {
        try await write(unsafe bytes.span.bytes, timeout: timeout)
    }

    /// Writes bytes that it borrows, such as a part of an array; otherwise as ``write(_:timeout:)-([UInt8],_)``.
    nonisolated(nonsending) public func write(_ bytes: RawSpan, timeout: Duration? = nil) async throws {
        try await writeWhole(timeout) { timeout, accepted in
            try await halves.output.writeAll(bytes, accepted: &accepted, timeout: timeout)
        }
    }

    /// Writes a text in UTF-8; otherwise as ``write(_:timeout:)-([UInt8],_)``.
    nonisolated(nonsending) public func write(_ text: String, timeout: Duration? = nil) async throws {
        try await write(Array(text.utf8), timeout: timeout)
    }

    /// Writes bytes of a file, which the kernel sends where it can; otherwise as ``write(_:timeout:)-([UInt8],_)``.
    ///
    /// - Parameters:
    ///   - file: A descriptor of a file that can be read at any offset. Its own offset stays.
    ///   - range: The offsets of the bytes.
    ///   - timeout: As for other writes.
    nonisolated(nonsending) public func write(
        contentsOf file: FileDescriptor, range: Range<Int>, timeout: Duration? = nil
    ) async throws {
        try await writeWhole(timeout) { timeout, accepted in
            try await halves.output.writeAll(
                contentsOf: file, range: range, accepted: &accepted, timeout: timeout)
        }
    }

    /// Calls `body`, which writes and counts what was accepted. Fails the connection if that ends after some bytes.
    nonisolated(nonsending) private func writeWhole(
        _ timeout: Duration?, _ body: nonisolated(nonsending) (Duration?, inout Int) async throws -> Void
    ) async throws {
        try await inTurn(timeout) { timeout in
            var accepted = 0
            do { try await body(timeout, &accepted) } catch {
                let engine = halves.output.engine
                guard accepted > 0, !engine.isClosed else { throw error }
                let errno = (error as? IOError)?.errno
                socket.fail(errno ?? .canceled, on: nil)
                // No later call can succeed, as after a wait that was only too short.
                throw errno.map { engine.failure($0) } ?? error
            }
        }
    }

    /// Waits until the kernel has taken everything that was written, and ends the output; bytes from the peer are still read.
    ///
    /// The end comes after the writes that were called before. Those that are called meanwhile wait, and fail once the output
    /// has ended. Does nothing if the output has ended. What a ``SendQueue`` holds is dropped: call its
    /// ``SendQueue/finish(timeout:)``.
    ///
    /// - Parameter timeout: How long to wait for the bytes; nil for no limit. After it the output stays open.
    /// - Throws: As ``write(_:timeout:)-([UInt8],_)``.
    nonisolated(nonsending) public func finish(timeout: Duration? = nil) async throws {
        try await inTurn(timeout) { timeout in
            if halves.output.streamStatus != .atEnd { try await halves.output.finish(timeout: timeout) }
        }
    }

    /// Waits until the kernel has taken everything that was written: by the writes that were called before, and by
    /// ``send(_:)-([UInt8])``. Other tasks may write meanwhile, and this does not wait for their bytes.
    ///
    /// - Parameter timeout: How long to wait; nil for no limit.
    /// - Throws: As ``write(_:timeout:)-([UInt8],_)``.
    nonisolated(nonsending) public func flush(timeout: Duration? = nil) async throws {
        let engine = halves.output.engine
        let (place, deadline) = try limit(timeout, #isolation)
        if [.notOpen, .opening].contains(engine.status) {
            try await inTurn(timeout) { timeout in try await halves.output.waitUntilOpen(timeout: timeout) }
        }
        do throws(Errno) {
            try await turns.waitForWrites(until: deadline, at: place)
            try await waitForFlush(until: deadline, at: place, engine.backend.whenFlushed)
        } catch {
            throw failure(error)
        }
        // Throws if the connection has ended instead.
        _ = try engine.isFlushed()
    }

    /// Protects the connection after the writes that were called before, and waits until the handshake has succeeded. Opens the
    /// connection if nothing has: the handshake is part of that.
    ///
    /// - Returns: As ``protect(by:)``.
    nonisolated(nonsending) package func protect(by security: Security, timeout: Duration?) async throws
        -> Bool
    {
        let isUpgrade = state != .notOpen
        if !isUpgrade, !protect(by: security) { return false }
        return try await inTurn(timeout) { timeout in
            if isUpgrade, !protect(by: security) { return false }
            let (output, socket) = (halves.output, socket)
            let use = try StreamUse(output, timeout: timeout)
            try await use.next(isolation: #isolation) {
                try output.engine.isOpening() || socket.channel?.isEstablished == false ? nil : ()
            }
            return true
        }
    }

    /// Waits for this write's turn, then calls `body` with what is left of `timeout`.
    nonisolated(nonsending) private func inTurn<Result>(
        _ timeout: Duration?, _ body: nonisolated(nonsending) (Duration?) async throws -> Result
    ) async throws -> Result {
        halves.input.open()
        let rest = try await takeTurn(timeout)
        defer { turns.pass() }
        return try await body(rest)
    }

    /// Waits for the turn. Returns what is left of `timeout`.
    nonisolated(nonsending) private func takeTurn(_ timeout: Duration?) async throws -> Duration? {
        if turns.takeIfFree() { return timeout }
        let (place, deadline) = try limit(timeout, #isolation)
        do throws(Errno) { try await turns.take(until: deadline, at: place) } catch {
            throw failure(error)
        }
        return deadline.map { place.loop.now.duration(to: $0) }
    }

    /// When a wait for `timeout` ends, and where the task waits.
    private func limit(
        _ timeout: Duration?, _ isolation: (any Actor)?
    ) throws -> (place: TaskPlace, deadline: Deadline?) {
        let home = halves.output.engine.scheduledPlace?.loop
        do throws(Errno) {
            let place = try RunLoop.place(of: isolation, orOn: home)
            return (place, timeout.deadline(on: place.loop))
        } catch {
            throw failure(error)
        }
    }

    private func failure(_ error: Errno) -> any Error {
        error == .canceled ? CancellationError() : halves.output.engine.failure(.endOfWait(error))
    }
}
