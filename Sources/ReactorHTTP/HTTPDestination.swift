public import Dispatch
public import Reactor

/// Where the body of a response goes.
public struct HTTPDestination: Sendable {
    enum Kind: Sendable {
        case memory(limit: Int)
        case handler(@Sendable (HTTPEvent) -> Void)
        /// With a buffer, the stream is a bound pair's output; the pair's input fails if the transfer does.
        case stream(Transferred<OutputStream>, pair: BoundBuffer? = nil)
        case file(FilePath, resumes: Bool)
    }

    let kind: Kind

    /// Fails the bound pair of a transfer that does not begin.
    func fail(with error: HTTPError) {
        guard case .stream(let stream, let buffer?) = kind else { return }
        buffer.fail(error)
        stream.take()?.close()
    }

    /// Closes the client's stream of a transfer that does not begin.
    func close() {
        if case .stream(let stream, nil) = kind { stream.take()?.close() }
    }

    /// Collects the body in ``HTTPTransfer/Response/body``. A body of more than `limit` bytes is an error.
    public static func memory(limit: Int = 16 << 20) -> Self { Self(kind: .memory(limit: limit)) }

    /// Calls a closure with the head of the response, then with each piece of the body.
    ///
    /// While ``HTTPSession/Configuration/bytesInFlight`` bytes wait for the closure, the transfer pauses.
    public static func handler(_ handler: @escaping @Sendable (HTTPEvent) -> Void) -> Self {
        Self(kind: .handler(handler))
    }

    /// Writes the body to a stream, at the speed at which the stream accepts it.
    ///
    /// The session opens the stream, is its delegate, and closes it at the end, on its loop, even if the transfer fails.
    /// What was received before a failure is written first, unless the transfer is cancelled or its total timeout passes.
    /// If the session has ended and the transfer does not begin, the stream is closed where the completion is called.
    /// - Parameter stream: A stream that the caller uses no more.
    public static func stream(_ stream: sending OutputStream) -> Self {
        Self(kind: .stream(Transferred(stream)))
    }

    /// Saves the body of a successful response at `path`, and nothing otherwise.
    ///
    /// The body is written to a partial file, `path` with `.part` appended. When it is whole it is renamed to `path`, and
    /// replaces a regular file that is there. Any status but 200 to 299 is an error.
    ///
    /// A second download to the same path, in this process or another, fails with `Errno.resourceBusy` while the first one
    /// runs. So does the first one if another file has taken the place of its partial file.
    ///
    /// If `path` is a symbolic link, the file that it leads to is replaced, and the partial file is beside that one. A link
    /// that neither this user, nor root, nor the owner of its folder has made is an error. If `path` is a FIFO or a device,
    /// the body is written into it, and is neither retried nor resumed; a FIFO must have a reader. No file is used as a
    /// partial file that belongs to another user or is not regular.
    ///
    /// With `resumes`, a transfer that fails keeps its partial file, and a later one continues that file if the server still
    /// has the same version of the resource. The version is the strong `ETag`, or `Last-Modified`, which is kept in a second
    /// file, `path` with `.part.validator` appended. If the server has another version, or names none, the download begins
    /// anew. Only a GET request without a body and without a `Range` field is resumed.
    ///
    /// The response of a resumed download has the status 206; or 416 if the partial file had all bytes already.
    ///
    /// - Parameters:
    ///   - path: The file, relative to the current directory at the time of the call.
    ///   - resumes: Whether to keep the partial file of a failed transfer, and to continue one that has been kept.
    public static func file(_ path: FilePath, resumes: Bool = false) -> Self {
        Self(kind: .file(path.resolved, resumes: resumes))
    }
}

/// What ``HTTPDestination/handler(_:)`` is called with. More cases may follow: a `switch` needs `@unknown default`.
@nonexhaustive public enum HTTPEvent: Sendable {
    /// The head of the response; once, before the body.
    case response(HTTPTransfer.Response)
    /// The next bytes of the body.
    case bytes([UInt8])
}

/// Where a transfer's callbacks are called. They are called in order, one at a time.
///
/// Once the thread of a transfer's loop has ended, they are called on a global queue.
public struct HTTPDelivery: Sendable {
    enum Kind: Sendable {
        case session
        case queue(DispatchQueue)
        case runLoop(RunLoop, [RunLoop.Mode])
        /// A task takes the events itself.
        case pulled
    }

    let kind: Kind

    /// On the session's loop, in the session's modes.
    public static var session: Self { Self(kind: .session) }

    /// On a queue.
    public static func queue(_ queue: DispatchQueue) -> Self { Self(kind: .queue(queue)) }

    /// On another loop, in the given modes of it.
    public static func runLoop(_ runLoop: RunLoop, inModes modes: [RunLoop.Mode] = [.common]) -> Self {
        Self(kind: .runLoop(runLoop, modes))
    }
}
