import Dispatch
public import Reactor

import struct Synchronization.Atomic

/// A transfer that a session has started. All methods may be called from any thread, at any moment.
///
/// Releasing it does not end the transfer.
public final class HTTPTransfer: Sendable {
    /// How far a transfer has come.
    public struct Progress: Sendable, Hashable {
        /// The bytes of the request's body that have been sent. A redirect or a retry that sends it again counts from 0.
        public internal(set) var bytesSent = 0
        /// The bytes of the response's body, decoded, and with those of ``bytesResumed``.
        public internal(set) var bytesReceived = 0
        /// How many of the received bytes an earlier attempt or download had kept.
        public internal(set) var bytesResumed = 0
        /// How many bytes of the response's body there will be; nil if that is not known, or if it is compressed.
        public internal(set) var bytesExpected: Int?
        /// The number of retries, with one that waits for its delay, or was ended in it: see
        /// ``HTTPSession/Configuration/retries``.
        public internal(set) var retryCount = 0
        /// The error that has caused the last retry; nil before the first.
        public internal(set) var retryReason: HTTPError?
    }

    /// The callbacks for the transfer's events.
    struct Callbacks: Sendable {
        var event: (@Sendable (HTTPEvent) -> Void)?
        var progress: (@Sendable (Progress) -> Void)?
        var completion: @Sendable (Result<Response, HTTPError>) -> Void
    }

    /// The request that was started.
    public let request: HTTPRequest
    let body: HTTPSource?
    /// When it was started.
    public let startDate = Deadline.now

    let number: UInt64
    let outbox: Outbox
    let session: SessionCore
    let phase = Mutex(Phase.started)
    private let suspension = Atomic(false)

    init(
        _ request: HTTPRequest, _ body: HTTPSource?, number: UInt64, in session: SessionCore,
        delivery: HTTPDelivery,
        group: DispatchGroup?, _ makeCallbacks: (HTTPTransfer) -> Callbacks
    ) {
        self.request = request
        self.body = body
        self.number = number
        self.session = session
        outbox = Outbox(delivery, group, limit: session.configuration.bytesInFlight, in: session)
        outbox.begin(makeCallbacks(self)) { [session, number] in session.post(.resume(number)) }
    }

    /// How far the transfer has come.
    public var progress: Progress { outbox.progress }

    /// Ends the transfer with ``HTTPError/Kind/cancelled``, unless it has ended already.
    ///
    /// Events that have not been delivered are dropped, and a transfer whose head or bytes are dropped does not succeed. If
    /// this is called where the transfer's callbacks are called, no callback but the completion follows.
    public func cancel() {
        outbox.dropEvents(HTTPError(.cancelled, request))
        session.post(.cancel(number))
    }

    /// Stops sending and receiving until ``resume()``. A transfer that has not begun does not begin. The connection stays
    /// open, and the idle timeout does not count.
    public func suspend() { suspension.store(true, ordering: .relaxed) }

    /// Continues after ``suspend()``.
    public func resume() {
        // The idle timeout of a transfer that is not suspended continues.
        if suspension.exchange(false, ordering: .relaxed) { session.post(.resume(number)) }
    }

    var isSuspended: Bool { suspension.load(ordering: .relaxed) }
}
