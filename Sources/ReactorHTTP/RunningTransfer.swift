import CReactorLibcurl
import Glibc
import Reactor

/// A transfer while libcurl drives it: what libcurl's callbacks record, and what follows. Confined to the session's loop.
final class RunningTransfer {
    enum State {
        /// Waits until libcurl has few enough transfers of its host.
        case queued
        /// Was suspended before it began.
        case held
        /// libcurl has it, and looks for a connection.
        case admitted
        /// Since a served time, in nanoseconds.
        case connecting(since: Int64)
        case transferring
        /// Waits for its next attempt.
        case delayed(Timer)
        /// libcurl has finished, and the sink may have bytes left to write.
        case finishing
    }

    let transfer: HTTPTransfer
    var state = State.queued {
        willSet { if case .delayed(let timer) = state { timer.invalidate() } }
        didSet { notePhase() }
    }
    /// What ``HTTPTransfer/explain()`` knows.
    private var phase = HTTPTransfer.Phase.started
    let multi: MultiHandle
    let sink: any BodySink
    private(set) var upload: (any BodySource)?
    var attempt = Attempt()
    /// From the beginning of an attempt until libcurl has finished with it.
    var easy: EasyHandle?
    private var attemptCount = 0
    private lazy var retryDelays = configuration.retryDelays
    /// Why the transfer has failed whose sink still writes what it has received.
    private var failure: HTTPError?
    /// Whether bytes that libcurl has held are taken without room: it would copy what is left each time.
    private(set) var takesAll = false
    private var needsUpdate = false
    /// Received bytes that are not in the progress yet.
    var unreportedCount = 0
    var timeouts: TransferTimeouts

    init(_ transfer: HTTPTransfer, _ destination: HTTPDestination, _ multi: MultiHandle) {
        self.transfer = transfer
        self.multi = multi
        timeouts = TransferTimeouts(since: multi.timeouts.now)
        sink = makeSink(destination, transfer.outbox, multi)
        sink.owner = self
        noteActivity()
    }

    var number: UInt64 { transfer.number }
    /// The scheme, the host and the port, as the request's URL has them.
    private(set) lazy var host = transfer.request.origin
    var isSuspended: Bool { transfer.isSuspended }
    /// What libcurl names the attempt by; nil between attempts.
    var identity: UInt? { easy?.identity }
    var configuration: HTTPSession.Configuration { multi.configuration }

    func error(_ kind: HTTPError.Kind, reason: String? = nil, errno: Errno? = nil) -> HTTPError {
        HTTPError(kind, transfer.request, response: attempt.response, reason: reason, errno: errno)
    }

    // MARK: Attempts

    /// Creates a handle for the next attempt; returns why that is impossible.
    func prepare(closingWith sockets: SocketTable) -> HTTPError? {
        require(easy == nil, "A transfer has begun twice.")
        // An attempt that repeats the last one without a range is not a retry.
        if !attempt.restartsAtOnce { attemptCount += 1 }
        attempt = Attempt()
        noteActivity()
        var request = transfer.request
        let hasBody = transfer.body != nil
        sink.prepare(&request, hasBody: hasBody)
        if let (kind, reason) = request.fault(hasBody: hasBody, userAgent: configuration.userAgent) {
            return error(kind, reason: reason)
        }
        if let failure = sink.failure { return error(failure) }
        do throws(IOError) { try prepareUpload() } catch { return self.error(.read(error)) }
        guard request.framesBody(upload.map(\.length)) else {
            return error(.invalidRequest, reason: "Content-Length or Transfer-Encoding is not the body's")
        }
        guard var handle = EasyHandle(number) else {
            return error(.libcurl(Int(CURLE_OUT_OF_MEMORY.rawValue)))
        }
        handle.configure(request, configuration, decodes: sink.decodes, bodyLength: upload.map(\.length))
        handle.setCallbacks(to: self, closingWith: sockets)
        if handle.failure != CURLE_OK { return error(.libcurl(Int(handle.failure.rawValue))) }
        easy = consume handle
        state = .admitted
        return nil
    }

    private func prepareUpload() throws(IOError) {
        if upload == nil {
            upload = try transfer.body.map { (body) throws(IOError) in try makeSource(body, multi) }
            upload?.owner = self
        } else {
            _ = rewindUpload()
        }
    }

    /// Called when libcurl no longer has the handle of an attempt.
    func libcurlHasEnded() {
        easy = nil
        state = .finishing
    }

    /// Begins a retry because of `error`, and returns how long to wait before; nil if there is none.
    func beginRetry(after error: HTTPError) -> Duration? {
        guard attemptCount <= configuration.retries, transfer.request.isIdempotent,
            upload?.isRepeatable != false, error.kind.isTransient, sink.restart()
        else { return nil }
        transfer.outbox.update {
            $0.retryCount += 1
            $0.retryReason = error
        }
        return retryDelays?.nextBound() ?? .zero
    }

    func finish() -> Result<HTTPTransfer.Response?, HTTPError> {
        guard let response = attempt.response else { return .failure(error(.invalidResponse)) }
        switch sink.finish() {
        case .finished(let body):
            var response = response
            response.body = body
            return .success(response)
        case .later: return .success(nil)
        case .failed(let kind): return .failure(error(kind))
        }
    }

    func abandon(_ error: HTTPError) { sink.abandon(error) }

    var canAbandonInsideLibcurl: Bool { sink.canAbandonInsideLibcurl }

    /// Releases what the transfer has, and ends the cycles of references.
    func end() {
        state = .finishing
        upload?.end()
        upload?.owner = nil
        transfer.body?.close()
        sink.owner = nil
    }

    /// Whether the sink, before it gets `error`, writes what has been received; it then reports.
    func drains(_ error: HTTPError) -> Bool {
        switch error.kind {
        case .cancelled, .sessionEnded, .timedOut(.total): return false
        default: break
        }
        guard failure == nil, sink.drain() else { return false }
        failure = error
        return true
    }

    /// Called by the sink, outside libcurl, when its last bytes have been written.
    func sinkHasFinished(_ kind: HTTPError.Kind?) {
        if let failure { return multi.sinkHasFinished(self, .failure(failure)) }
        guard let response = attempt.response else { return }
        multi.sinkHasFinished(self, kind.map { .failure(error($0)) } ?? .success(response))
    }

    /// Called by the sink, outside libcurl, when it can write nothing more.
    func sinkHasFailed(_ kind: HTTPError.Kind) { multi.callLibcurl { multi.fail(self, kind) } }

    // MARK: Pausing

    var canReceive: Bool { !isSuspended && sink.hasRoom }

    /// Continues what has paused; nil if nothing can.
    func resume() -> CURLcode? {
        // What has been received meanwhile is passed on, and the idle timeout begins anew.
        noteActivity()
        let receives = attempt.isReceivingPaused && canReceive
        let sends = attempt.isSendingPaused && !isSuspended && upload?.isReady == true
        guard easy != nil, receives || sends else { return nil }
        // libcurl pauses again what cannot continue.
        (attempt.isReceivingPaused, attempt.isSendingPaused) = (false, false)
        takesAll = receives
        defer { takesAll = false }
        return easy?.unpause()
    }

    /// Called by streams, outside libcurl, when they have room or bytes again.
    func streamIsReady() {
        if attempt.isReceivingPaused || attempt.isSendingPaused { multi.resumeFromStream(self) }
    }

    /// Does what may call the client's streams, after libcurl has returned.
    func libcurlHasReturned() {
        needsUpdate = false
        notePhase()
        reportProgress()
        upload?.fill()
        sink.writeOut()
        let continues =
            attempt.isReceivingPaused && canReceive || attempt.isSendingPaused && upload?.isReady == true
        if continues, easy != nil, !isSuspended { multi.continueLater(self) }
    }

    private func notePhase() {
        let new: HTTPTransfer.Phase =
            switch state {
            case .queued, .held: .queued
            case .admitted, .connecting: .connecting
            case .transferring where attempt.isReceivingPaused: .receivingPaused
            case .transferring where attempt.isSendingPaused: .sendingPaused
            case .transferring: attempt.response == nil ? .sending : .receiving
            case .delayed(let timer): .delayed(until: timer.fireDate)
            case .finishing: .finishing
            }
        guard new != phase else { return }
        phase = new
        transfer.phase.withLock { $0 = new }
    }

    func reportProgress() {
        guard unreportedCount > 0 else { return }
        let count = unreportedCount
        transfer.outbox.update { $0.bytesReceived += count }
        unreportedCount = 0
    }

    /// Has ``libcurlHasReturned()`` called.
    func noteActivity() {
        timeouts.lastActivity = multi.timeouts.now
        guard !needsUpdate else { return }
        needsUpdate = true
        multi.noteChange(of: self)
    }

    // MARK: Timeouts

    func nextTimeout(at now: Int64) -> RemainingTime {
        timeouts.next(at: now, in: state, waitsForClient: waitsForClient, configuration)
    }

    /// Whether the transfer waits for the client, not for the server.
    private var waitsForClient: Bool { isSuspended || attempt.isReceivingPaused || attempt.isSendingPaused }

    /// Called when the transfer's socket is ready. Not every byte of a head or of a compressed body comes with a callback;
    /// but a connection of HTTP/2 may carry the bytes of other transfers.
    func socketIsReady() {
        let version = attempt.response?.version ?? (attempt.parser.isInHead ? attempt.parser.version : nil)
        let isShared = version.map { $0 == .http2 || $0 == .http3 } ?? multi.multiplexes(host)
        if !isShared { timeouts.lastActivity = multi.timeouts.now }
    }
}
