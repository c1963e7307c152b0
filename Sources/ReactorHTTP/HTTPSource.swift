public import Reactor

/// Where the body of a request comes from.
public struct HTTPSource: Sendable {
    enum Kind: Sendable {
        case bytes([UInt8])
        case file(FilePath)
        case stream(Transferred<InputStream>, length: Int?)
    }

    let kind: Kind

    /// A body in memory.
    public static func bytes(_ bytes: [UInt8]) -> Self { Self(kind: .bytes(bytes)) }

    /// The file at `path`, which is read while it is sent.
    ///
    /// Of a regular file as many bytes are sent as it has at the beginning: not those that are appended meanwhile, and
    /// it is an error if bytes are removed. A FIFO, a device, or a file of `/proc` or `/sys`, whose length only reading
    /// shows, is sent to its end, by HTTP/1.1 in chunks. A FIFO or a device can be sent once, as a stream can.
    public static func file(_ path: FilePath) -> Self { Self(kind: .file(path.resolved)) }

    /// A stream, which is read while it is sent. It can be sent once: a redirect that repeats the body fails, and the
    /// request is not retried.
    ///
    /// The session opens the stream, is its delegate, and closes it.
    /// - Parameters:
    ///   - stream: A stream that the caller uses no more.
    ///   - length: The number of bytes, if it is known; otherwise HTTP/1.1 sends the body in chunks. No more bytes are
    ///     sent, and it is an error if the stream has fewer.
    /// - Precondition: `length` is not negative.
    public static func stream(_ stream: sending InputStream, length: Int? = nil) -> Self {
        require(
            (length ?? 0) >= 0,
            "HTTPSource.stream must have a length of at least 0 (it is \(length ?? 0)).")
        return Self(kind: .stream(Transferred(stream), length: length))
    }

    /// Closes the stream of a transfer that does not begin, or that has failed before the stream was used.
    func close() {
        if case .stream(let stream, _) = kind { stream.take()?.close() }
    }
}
