public import ReactorFoundation
public import ReactorHTTP

/// An operation that performs a transfer of a session.
///
/// ```swift
/// let download = HTTPOperation(HTTPRequest(url), to: .file(path), in: session)
/// check.addDependency(download)
/// queue.addOperations([download, check], waitUntilFinished: false)
/// ```
///
/// The transfer begins when the queue starts the operation, so dependencies, priorities and `maxConcurrentOperationCount`
/// hold for transfers. Cancelling the operation cancels the transfer, and its `result` is then an `HTTPError` of the kind
/// `cancelled`; an operation that is cancelled before it starts sends nothing, and fails with a `CancellationError`.
///
/// Its `progress` counts the bytes of the response's body, once their number is known.
public final class HTTPOperation: RunLoopOperation, @unchecked Sendable {
    // `@unchecked Sendable` is required of every subclass of `Operation`. All its properties are immutable and `Sendable`.

    private struct State {
        var transfer: HTTPTransfer?
        var response: HTTPTransfer.Response?
    }

    /// What is sent.
    public let request: HTTPRequest
    private let body: HTTPSource?
    private let destination: HTTPDestination
    private let session: HTTPSession
    private let state = Mutex(State())

    /// Creates an operation that works on the session's loop, in the session's modes.
    ///
    /// - Parameters:
    ///   - request: What to send.
    ///   - body: The body of the request; nil for none.
    ///   - destination: Where the body of the response goes.
    ///   - session: The session.
    public init(
        _ request: HTTPRequest, body: HTTPSource? = nil, to destination: HTTPDestination = .memory(),
        in session: HTTPSession
    ) {
        self.request = request
        self.body = body
        self.destination = destination
        self.session = session
        super.init(runLoop: session.runLoop, inModes: session.modes)
    }

    /// The response; nil until the operation finishes, and if it fails.
    public var response: HTTPTransfer.Response? { state.withLock { $0.response } }

    /// The transfer; nil until the operation starts.
    public var transfer: HTTPTransfer? { state.withLock { $0.transfer } }

    /// Starts the transfer.
    public override func operationDidStart() {
        let transfer = session.start(request, body: body, to: destination, progress: note) { [self] result in
            state.withLock { $0.response = try? result.get() }
            finish(with: result.map { _ in }.mapError { $0 })
        }
        state.withLock { $0.transfer = transfer }
    }

    /// Cancels the transfer, whose end finishes the operation.
    public override func operationDidCancel() { transfer?.cancel() }

    @Sendable private func note(_ bytes: HTTPTransfer.Progress) {
        // Foundation traps on a total of 0. The end completes the progress of an empty body.
        guard let expected = bytes.bytesExpected, expected > 0 else { return }
        progress.totalUnitCount = Int64(expected)
        progress.completedUnitCount = Int64(bytes.bytesReceived)
    }
}
