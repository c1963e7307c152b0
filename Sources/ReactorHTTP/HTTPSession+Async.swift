public import Reactor

import struct Synchronization.Atomic

// The tasks take the events themselves, from the outbox of the transfer: there is no thread and no loop between.

extension HTTPSession {
    /// Sends a request, and returns the head of the response and a sequence of the pieces of its body.
    ///
    /// ```swift
    /// let (response, body) = try await session.response(for: HTTPRequest("https://example.org/"))
    /// for try await piece in body { count += piece.count }
    /// ```
    ///
    /// Releasing the body before its end cancels the transfer, as does cancelling the task.
    ///
    /// - Parameters:
    ///   - request: What to send.
    ///   - source: The body of the request; nil for none.
    /// - Throws: ``HTTPError``; `CancellationError` if the task is cancelled.
    nonisolated(nonsending) public func response(
        for request: HTTPRequest, body source: HTTPSource? = nil
    ) async throws -> (response: HTTPTransfer.Response, body: HTTPBody) {
        let body = HTTPBody(startPulled(request, source, .handler { _ in }))
        while true {
            switch await body.transfer.takeEvent() {
            case .event(.response(let response)): return (response, body)
            case .completion(.success(let response)): return (response, body)
            case .completion(.failure(let error)): throw error.orCancellation
            case nil: throw HTTPError(.sessionEnded, request)
            case .event(.bytes), .progress: break
            }
        }
    }

    /// Sends a request, and returns the response with its body in memory.
    ///
    /// - Parameters:
    ///   - request: What to send.
    ///   - body: The body of the request; nil for none.
    ///   - limit: The maximum number of bytes of the body; a longer one is an error.
    /// - Throws: ``HTTPError``; `CancellationError` if the task is cancelled.
    nonisolated(nonsending) public func load(
        _ request: HTTPRequest, body: HTTPSource? = nil, limit: Int = 16 << 20
    ) async throws -> HTTPTransfer.Response {
        let transfer = startPulled(request, body, .memory(limit: limit))
        return try await transfer.completion { _ in }
    }

    /// Saves the body of a successful response as a file, as ``HTTPDestination/file(_:resumes:)`` does.
    ///
    /// - Parameters:
    ///   - request: What to send.
    ///   - body: The body of the request; nil for none.
    ///   - path: The file.
    ///   - resumes: Whether to keep the partial file of a failed transfer, and to continue one that has been kept.
    ///   - progress: Called in the task after bytes have been sent or received.
    /// - Throws: ``HTTPError``; `CancellationError` if the task is cancelled.
    @discardableResult
    nonisolated(nonsending) public func download(
        _ request: HTTPRequest, body: HTTPSource? = nil, to path: FilePath, resumes: Bool = false,
        progress: (HTTPTransfer.Progress) -> Void = { _ in }
    ) async throws -> HTTPTransfer.Response {
        let transfer = startPulled(request, body, .file(path, resumes: resumes))
        return try await transfer.completion(progress)
    }

    private func startPulled(
        _ request: HTTPRequest, _ body: HTTPSource?, _ destination: HTTPDestination
    ) -> HTTPTransfer {
        core.start(request, body, destination, HTTPDelivery(kind: .pulled), nil) { _ in
            HTTPTransfer.Callbacks(progress: { _ in }, completion: { _ in })
        }
    }
}

extension HTTPTransfer {
    /// Waits for the next event; cancels the transfer if the task is cancelled.
    nonisolated(nonsending) fileprivate func takeEvent() async -> Outbox.Event? {
        await withTaskCancellationHandler {
            await outbox.take()
        } onCancel: {
            cancel()
        }
    }

    nonisolated(nonsending) fileprivate func completion(
        _ progress: (Progress) -> Void
    ) async throws -> Response {
        while let event = await takeEvent() {
            switch event {
            case .progress: progress(self.progress)
            case .completion(.success(let response)): return response
            case .completion(.failure(let error)): throw error.orCancellation
            case .event: break
            }
        }
        throw HTTPError(.sessionEnded, request)
    }
}

extension HTTPError {
    /// What an asynchronous call throws: whatever has ended the transfer of a cancelled task, the task has been cancelled.
    fileprivate var orCancellation: any Error { Task.isCancelled ? CancellationError() : self }
}

/// The body of a response in pieces, as they arrive.
///
/// While no piece is awaited, ``HTTPSession/Configuration/bytesInFlight`` bytes are received at most, then the transfer
/// pauses. The body is iterated once. Releasing it before its end cancels the transfer.
public struct HTTPBody: AsyncSequence, Sendable {
    private let owner: Owner

    fileprivate init(_ transfer: HTTPTransfer) { owner = Owner(transfer) }

    /// The transfer: its progress, and a way to suspend it.
    public var transfer: HTTPTransfer { owner.transfer }

    /// Begins the iteration.
    ///
    /// - Precondition: The iteration has not begun before.
    public func makeAsyncIterator() -> Iterator {
        require(
            owner.beginIteration(),
            "An HTTPBody is iterated once: its pieces are not kept for a second iteration.")
        return Iterator(owner: owner)
    }

    /// Takes one piece after the other.
    public struct Iterator: AsyncIteratorProtocol {
        fileprivate let owner: Owner

        /// The next piece; nil at the end.
        ///
        /// - Throws: ``HTTPError``; `CancellationError` if the task is cancelled.
        nonisolated(nonsending) public func next() async throws -> [UInt8]? {
            while let event = await owner.transfer.takeEvent() {
                switch event {
                case .event(.bytes(let bytes)): return bytes
                case .completion(.failure(let error)): throw error.orCancellation
                case .completion(.success): return nil
                case .event(.response), .progress: break
                }
            }
            return nil
        }

        /// The next piece; nil at the end.
        public func next(isolation actor: isolated (any Actor)?) async throws -> [UInt8]? {
            try await next()
        }
    }

    fileprivate final class Owner: Sendable {
        let transfer: HTTPTransfer
        private let isIterated = Atomic(false)

        init(_ transfer: HTTPTransfer) { self.transfer = transfer }

        deinit { transfer.cancel() }

        /// False if an iteration has begun before.
        func beginIteration() -> Bool { !isIterated.exchange(true, ordering: .relaxed) }
    }
}
