/// The error of an asynchronous stream operation.
///
/// Bytes that a reading operation had read before it failed stay with the stream: the next one reads them.
public enum StreamError: Error, Sendable {
    /// The stream has failed: its ``Stream/streamError``. Lines fail with ``LineFramer/LineTooLong`` and
    /// ``InvalidText`` too.
    case failed(any Error)
    /// The stream was closed.
    case closed
    /// The stream's end came first.
    case ended
    /// As many bytes as the limit allows have come, and no delimiter.
    case tooLong
    /// The timeout has passed.
    case timedOut
    /// The task was cancelled.
    case cancelled
}

extension StreamError: CustomStringConvertible {
    /// What has happened.
    public var description: String {
        switch self {
        case .failed(let error): "\(error)"
        case .closed: "the stream was closed"
        case .ended: "the stream ended first"
        case .tooLong: "no delimiter came within the limit"
        case .timedOut: "the timeout has passed"
        case .cancelled: "the task was cancelled"
        }
    }
}
