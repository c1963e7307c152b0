import CReactorLibcurl
import Glibc
import Reactor

/// A transfer while libcurl drives it: what libcurl's callbacks record, and what follows. Confined to the session's loop.
final class RunningTransfer {
    private enum Phase {
        /// For a connection of its own.
        case waiting
        /// Since a served time, in nanoseconds.
        case connecting(since: Int64)
        case connected
    }

    /// What remains of the nearest time-out.
    enum Remaining {
        case expired(HTTPError.Timeout)
        case after(Duration)
        case never
    }

    let transfer: HTTPTransfer
    /// Nil between attempts, and once libcurl has finished.
    var easy: EasyHandle?
    var isSuspended = false
    var retryTimer: Timer?
    private let multi: MultiHandle
    private let sink: any BodySink
    private var upload: (any BodySource)?
    private var parser = HTTPResponse.HeadParser()
    private var response: HTTPResponse?
    /// Why a callback has ended the transfer.
    private var refusal: HTTPError.Kind?
    /// Why the transfer has failed whose sink still writes what it has received.
    private var failure: HTTPError?
    private(set) var restartsAtOnce = false
    /// Whether libcurl holds bytes until it is told to continue.
    private var isReceivingPaused = false
    private var isSendingPaused = false
    private var isTouched = false
    private var attempts = 0
    /// Received bytes that are not in the progress yet.
    private var unreportedCount = 0
    private var phase = Phase.waiting
    private let beginning: Int64
    private var lastActivity: Int64 = 0

    init(_ transfer: HTTPTransfer, _ destination: HTTPDestination, _ multi: MultiHandle) {
        self.transfer = transfer
        self.multi = multi
        beginning = multi.timeouts.now
        sink = makeSink(destination, transfer.outbox, multi)
        sink.owner = self
        touch()
    }

    var number: UInt64 { transfer.number }
    /// The scheme, the host and the port, as the request's URL has them.
    private(set) lazy var host = transfer.request.host
    private var configuration: HTTPSession.Configuration { multi.configuration }

    // MARK: Attempts

    /// Makes a handle for the next attempt; returns why that is impossible.
    func prepare(closingWith sockets: SocketTable) -> HTTPError.Kind? {
        attempts += 1
        (parser, response, refusal) = (HTTPResponse.HeadParser(), nil, nil)
        (isReceivingPaused, isSendingPaused, restartsAtOnce, phase) = (false, false, false, .waiting)
        guard HTTPFields.isToken(transfer.request.method), transfer.request.fields.areValid else {
            return .invalidRequest
        }
        var request = transfer.request
        sink.prepare(&request)
        do throws(IOError) { try prepareUpload(request) } catch { return .read(error) }
        guard var handle = EasyHandle() else { return .libcurl(Int(CURLE_OUT_OF_MEMORY.rawValue)) }
        handle.configure(request, configuration, decodes: sink.decodes, bodyLength: upload.map(\.length))
        handle.setCallbacks(to: self, closingWith: sockets)
        if handle.failure != CURLE_OK { return .libcurl(Int(handle.failure.rawValue)) }
        easy = consume handle
        return nil
    }

    private func prepareUpload(_ request: HTTPRequest) throws(IOError) {
        if upload == nil {
            upload = try request.body.map { (body) throws(IOError) in try makeSource(body, multi) }
            upload?.owner = self
        } else if upload?.rewind() != true {
            refusal = .bodyNotRepeatable
        }
    }

    /// The error of an attempt that libcurl has ended with `code`; nil if it has succeeded.
    func error(_ code: CURLcode) -> HTTPError? {
        reportProgress()
        if let refusal { return HTTPError(refusal, transfer.request) }
        guard code != CURLE_OK else { return nil }
        // An answer that is not HTTP's, or a redirect to another protocol.
        if code == CURLE_UNSUPPORTED_PROTOCOL, case .connected = phase {
            return HTTPError(.invalidResponse, transfer.request, reason: easy?.reason(code))
        }
        let number = easy?.number(CURLINFO_OS_ERRNO) ?? 0
        return HTTPError(
            HTTPError.Kind(code), transfer.request, reason: easy?.reason(code),
            errno: number == 0 ? nil : Errno(rawValue: CInt(number)))
    }

    /// How long to wait before the next attempt after `error`; nil if there is none.
    func delayOfRetry(_ error: HTTPError) -> Duration? {
        guard attempts <= configuration.retries, transfer.request.isIdempotent, error.kind.isTransient,
            sink.restart()
        else { return nil }
        return configuration.retryDelay * (1 << min(attempts - 1, 16))
    }

    func finish() -> Result<HTTPResponse?, HTTPError> {
        guard let response else {
            return .failure(HTTPError(.invalidResponse, transfer.request))
        }
        switch sink.finish() {
        case .finished(let body):
            var response = response
            response.body = body
            return .success(response)
        case .later: return .success(nil)
        case .failed(let kind): return .failure(HTTPError(kind, transfer.request))
        }
    }

    func abandon(_ error: HTTPError) { sink.abandon(error) }

    /// Releases what the transfer has, and ends the cycles of references.
    func end() {
        retryTimer.take()?.invalidate()
        upload?.end()
        upload?.owner = nil
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
        guard let response else { return }
        multi.sinkHasFinished(
            self, kind.map { .failure(HTTPError($0, transfer.request)) } ?? .success(response))
    }

    /// Called by the sink, outside libcurl, when it can write nothing more.
    func sinkHasFailed(_ kind: HTTPError.Kind) { multi.callLibcurl { multi.fail(self, kind) } }

    // MARK: Pausing

    private var canReceive: Bool { !isSuspended && sink.hasRoom }

    /// Continues what has paused; nil if nothing can.
    func resume() -> CURLcode? {
        let receives = isReceivingPaused && canReceive
        let sends = isSendingPaused && !isSuspended && upload?.isReady == true
        guard easy != nil, receives || sends else { return nil }
        lastActivity = multi.timeouts.now
        // libcurl pauses again what cannot continue.
        (isReceivingPaused, isSendingPaused) = (false, false)
        return easy?.unpause()
    }

    /// Called by streams, outside libcurl, when they have room or bytes again.
    func streamIsReady() { if isReceivingPaused || isSendingPaused { multi.resumeLater(self) } }

    /// Does what may call the client's streams, after libcurl has returned.
    func libcurlHasReturned() {
        isTouched = false
        reportProgress()
        upload?.fill()
        sink.writeOut()
        let continues = isReceivingPaused && canReceive || isSendingPaused && upload?.isReady == true
        if continues, easy != nil, !isSuspended { multi.continueLater(self) }
    }

    private func reportProgress() {
        guard unreportedCount > 0 else { return }
        let count = unreportedCount
        transfer.outbox.update { $0.bytesReceived += count }
        unreportedCount = 0
    }

    /// Has ``libcurlHasReturned()`` called.
    func touch() {
        lastActivity = multi.timeouts.now
        guard !isTouched else { return }
        isTouched = true
        multi.touch(self)
    }

    // MARK: Time-outs

    func nextTimeout(at now: Int64) -> Remaining {
        var nearest: (Int64, HTTPError.Timeout)?
        func note(_ limit: Duration?, since start: Int64, _ timeout: HTTPError.Timeout) {
            guard let limit else { return }
            let rest = start + limit.wholeNanoseconds - now
            if rest < nearest?.0 ?? .max { nearest = (rest, timeout) }
        }
        note(configuration.totalTimeout, since: beginning, .total)
        switch phase {
        case .connecting(let start): note(configuration.connectTimeout, since: start, .connect)
        case .connected where easy != nil && !isStandingStill:
            note(configuration.idleTimeout, since: lastActivity, .idle)
        // Checked again later: a consumer may let the transfer go on at any time.
        case .connected where easy != nil: note(configuration.idleTimeout, since: now, .idle)
        default: break
        }
        guard let nearest else { return .never }
        return nearest.0 <= 0 ? .expired(nearest.1) : .after(.nanoseconds(nearest.0))
    }

    /// Whether the transfer waits for the client, not for the server.
    private var isStandingStill: Bool { isSuspended || isReceivingPaused || isSendingPaused }

    private func enter(_ phase: Phase) {
        self.phase = phase
        lastActivity = multi.timeouts.now
        switch phase {
        case .connecting: multi.timeouts.expect(configuration.connectTimeout)
        case .connected: multi.timeouts.expect(configuration.idleTimeout)
        case .waiting: break
        }
    }
}

// MARK: - What libcurl's callbacks call

extension RunningTransfer {
    func takeHeadLine(_ line: [UInt8]) -> Bool {
        lastActivity = multi.timeouts.now
        guard parser.take(line), !isRedirected else { return true }
        let response = HTTPResponse(
            status: parser.status, fields: parser.fields,
            url: easy?.text(CURLINFO_EFFECTIVE_URL) ?? transfer.request.url, version: parser.version)
        self.response = response
        switch sink.begin(response) {
        case .accepts(let expected, let offset):
            transfer.outbox.update {
                ($0.bytesExpected, $0.bytesReceived) = (expected, offset)
            }
            return true
        case .refuses(let kind):
            refusal = kind
            return false
        case .restarts:
            (refusal, restartsAtOnce) = (.truncated, true)
            return false
        }
    }

    /// Whether libcurl follows the response whose head has been received.
    private var isRedirected: Bool {
        configuration.maxRedirects > 0 && [301, 302, 303, 307, 308].contains(parser.status)
            && parser.fields["Location"] != nil
    }

    /// The number of bytes that were accepted, or that the transfer pauses.
    func takeBody(_ bytes: RawSpan) -> Int {
        let count = bytes.byteCount
        touch()
        guard canReceive, multi.receiveBudget > 0 else {
            isReceivingPaused = true
            return Int(CURL_WRITEFUNC_PAUSE)
        }
        multi.receiveBudget -= count
        sink.receive(bytes)
        if let failure = sink.failure {
            refusal = failure
            return count == 0 ? 1 : 0
        }
        unreportedCount += count
        return count
    }

    func fillUpload(_ buffer: inout MutableRawSpan) -> Int {
        touch()
        guard let upload, refusal == nil else { return refusal == nil ? 0 : Int(CURL_READFUNC_ABORT) }
        if !isSuspended {
            switch upload.take(into: &buffer) {
            case .bytes(let count):
                transfer.outbox.update { $0.bytesSent += count }
                return count
            case .failed(let error):
                refusal = .read(error)
                return Int(CURL_READFUNC_ABORT)
            case .waiting: break
            }
        }
        isSendingPaused = true
        return Int(CURL_READFUNC_PAUSE)
    }

    func rewindUpload() -> Bool {
        guard upload?.rewind() == true else {
            refusal = .bodyNotRepeatable
            return false
        }
        return true
    }

    func beginConnecting() {
        if case .connecting = phase { return }
        enter(.connecting(since: multi.timeouts.now))
    }

    func hasConnected() { enter(.connected) }
}
