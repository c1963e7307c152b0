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
    /// From the beginning of an attempt until libcurl has finished with it.
    private var easy: EasyHandle?
    private let multi: MultiHandle
    private let sink: any BodySink
    private var upload: (any BodySource)?
    private var parser = HTTPResponse.HeadParser()
    private var response: HTTPResponse?
    /// Why a callback has ended the transfer.
    private var refusal: HTTPError.Kind?
    /// Why no socket could be made.
    private var socketFault: Errno?
    /// Why the transfer has failed whose sink still writes what it has received.
    private var failure: HTTPError?
    private(set) var restartsAtOnce = false
    /// Whether libcurl holds bytes until it is told to continue.
    private var isReceivingPaused = false
    private var isSendingPaused = false
    /// Whether bytes that libcurl has held are taken without room: it would copy what is left each time.
    private var takesAll = false
    /// Whether the body is not what the sink wants.
    private var isBodyIgnored = false
    /// Whether libcurl decompresses the body.
    private var isDecoding = false
    private var isTouched = false
    private var attempts = 0
    /// Received bytes that are not in the progress yet.
    private var unreportedCount = 0
    private let beginning: Int64
    private var lastActivity: Int64 = 0
    /// Where the time-out began that passes unless the pass of the loop that is under way brings bytes.
    private var overdueStart: Int64?

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
    var isSuspended: Bool { transfer.isSuspended }
    /// What libcurl names the attempt by; nil between attempts.
    var identity: UInt? { easy?.identity }
    private var configuration: HTTPSession.Configuration { multi.configuration }

    func error(_ kind: HTTPError.Kind, reason: String? = nil, errno: Errno? = nil) -> HTTPError {
        HTTPError(kind, transfer.request, response: response, reason: reason, errno: errno)
    }

    // MARK: Attempts

    /// Makes a handle for the next attempt; returns why that is impossible.
    func prepare(closingWith sockets: SocketTable) -> HTTPError? {
        require(easy == nil, "A transfer has begun twice.")
        // An attempt that repeats the last one without a range is not a retry.
        if !restartsAtOnce { attempts += 1 }
        (parser, response, refusal, socketFault) = (HTTPResponse.HeadParser(), nil, nil, nil)
        (isReceivingPaused, isSendingPaused, restartsAtOnce) = (false, false, false)
        (isBodyIgnored, isDecoding) = (false, false)
        touch()
        var request = transfer.request
        sink.prepare(&request)
        if let (kind, reason) = request.fault(userAgent: configuration.userAgent) {
            return error(kind, reason: reason)
        }
        if let failure = sink.failure { return error(failure) }
        do throws(IOError) { try prepareUpload(request) } catch { return self.error(.read(error)) }
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

    private func prepareUpload(_ request: HTTPRequest) throws(IOError) {
        if upload == nil {
            upload = try request.body.map { (body) throws(IOError) in try makeSource(body, multi) }
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

    /// The error of an attempt that libcurl has ended with `code`; nil if it has succeeded.
    func error(_ code: CURLcode) -> HTTPError? {
        reportProgress()
        if let refusal { return error(refusal, reason: parser.fault) }
        guard code != CURLE_OK else { return incompleteness.map { error($0) } }
        let kind = kind(of: code)
        // libcurl says that it has no memory.
        if case .bodyTooLarge = kind { return error(kind) }
        let errno = code == CURLE_COULDNT_CONNECT ? connectErrno : nil
        return error(kind, reason: easy?.reason(code), errno: errno)
    }

    /// What is wrong with a response that libcurl accepts. It accepts a head that the end of the connection has cut.
    private var incompleteness: HTTPError.Kind? {
        if response == nil { return parser.hasEnded ? .invalidResponse : .connectionLost }
        return sink.isWhole ? nil : .truncated
    }

    /// Why no connection could be made. Of a connection that has been made, it may belong to another address.
    private var connectErrno: Errno? {
        let number = easy?.number(CURLINFO_OS_ERRNO) ?? 0
        return socketFault ?? (number == 0 ? nil : Errno(rawValue: CInt(number)))
    }

    private func kind(of code: CURLcode) -> HTTPError.Kind {
        if code == CURLE_OUT_OF_MEMORY, isDecoding, isReceivingPaused {
            return .bodyTooLarge(limit: EasyHandle.pausedLimit)
        }
        // libcurl has no code of its own for wrong chunks.
        if code == CURLE_RECV_ERROR, easy?.reason(code).contains("chunk") == true { return .invalidResponse }
        // A proxy that refuses to connect. libcurl reports it as a connection that broke.
        if case .connecting = state, HTTPError.Kind(code) == .connectionLost { return .connect }
        guard code == CURLE_UNSUPPORTED_PROTOCOL, case .transferring = state else {
            return HTTPError.Kind(code)
        }
        // A redirect to another protocol, or an answer that is not HTTP's.
        return parser.redirects && easy?.hasURL("http:") == true ? .insecureRedirect : .invalidResponse
    }

    /// How long to wait before the next attempt after `error`; nil if there is none.
    func delayOfRetry(_ error: HTTPError) -> Duration? {
        guard attempts <= configuration.retries, transfer.request.isIdempotent,
            upload?.isRepeatable != false, error.kind.isTransient, sink.restart()
        else { return nil }
        return configuration.delay(ofRetry: attempts)
    }

    func finish() -> Result<HTTPResponse?, HTTPError> {
        guard let response else { return .failure(error(.invalidResponse)) }
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
        transfer.request.body?.close()
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
        multi.sinkHasFinished(self, kind.map { .failure(error($0)) } ?? .success(response))
    }

    /// Called by the sink, outside libcurl, when it can write nothing more.
    func sinkHasFailed(_ kind: HTTPError.Kind) { multi.callLibcurl { multi.fail(self, kind) } }

    // MARK: Pausing

    private var canReceive: Bool { !isSuspended && sink.hasRoom }

    /// Continues what has paused; nil if nothing can.
    func resume() -> CURLcode? {
        // What has been received meanwhile is passed on, and the idle time-out begins anew.
        touch()
        let receives = isReceivingPaused && canReceive
        let sends = isSendingPaused && !isSuspended && upload?.isReady == true
        guard easy != nil, receives || sends else { return nil }
        // libcurl pauses again what cannot continue.
        (isReceivingPaused, isSendingPaused) = (false, false)
        takesAll = receives
        defer { takesAll = false }
        return easy?.unpause()
    }

    /// Called by streams, outside libcurl, when they have room or bytes again.
    func streamIsReady() { if isReceivingPaused || isSendingPaused { multi.resumeLater(self) } }

    /// Does what may call the client's streams, after libcurl has returned.
    func libcurlHasReturned() {
        isTouched = false
        notePhase()
        reportProgress()
        upload?.fill()
        sink.writeOut()
        let continues = isReceivingPaused && canReceive || isSendingPaused && upload?.isReady == true
        if continues, easy != nil, !isSuspended { multi.continueLater(self) }
    }

    private func notePhase() {
        let new: HTTPTransfer.Phase =
            switch state {
            case .queued, .held: .queued
            case .admitted, .connecting: .connecting
            case .transferring where isReceivingPaused: .receivingPaused
            case .transferring where isSendingPaused: .sendingPaused
            case .transferring: response == nil ? .sending : .receiving
            case .delayed(let timer): .delayed(until: timer.fireDate)
            case .finishing: .finishing
            }
        guard new != phase else { return }
        phase = new
        transfer.phase.withLock { $0 = new }
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

    func nextTimeout(at now: Int64) -> RemainingTime {
        var nearest: (rest: Int64, timeout: HTTPError.Timeout, start: Int64)?
        func note(_ limit: Duration?, since start: Int64, _ timeout: HTTPError.Timeout) {
            guard let limit else { return }
            let rest = limit.wholeNanoseconds - (now - start)
            if rest < nearest?.rest ?? .max { nearest = (rest, timeout, start) }
        }
        note(configuration.totalTimeout, since: beginning, .total)
        switch state {
        case .connecting(let start): note(configuration.connectTimeout, since: start, .connect)
        case .transferring:
            // A consumer may let the transfer go on at any time: the time-out begins then.
            if waitsForClient { lastActivity = now }
            note(configuration.idleTimeout, since: lastActivity, .idle)
        case .queued, .held, .admitted, .delayed, .finishing: break
        }
        guard let (rest, timeout, start) = nearest else { return .never }
        if rest > 0 { return .after(.nanoseconds(rest)) }
        // If the process had no processor, what has arrived meanwhile is received after the pass's timers.
        if timeout != .total, overdueStart != start {
            overdueStart = start
            return .after(.zero)
        }
        return .expired(timeout)
    }

    /// Whether the transfer waits for the client, not for the server.
    private var waitsForClient: Bool { isSuspended || isReceivingPaused || isSendingPaused }

    /// Called when the transfer's socket is ready. Not every byte of a head or of a compressed body comes with a callback;
    /// but a connection of HTTP/2 may carry the bytes of other transfers.
    func socketIsReady() {
        let version = response?.version ?? (parser.isInHead ? parser.version : nil)
        let isShared = version.map { $0 == .http2 || $0 == .http3 } ?? multi.multiplexes(host)
        if !isShared { lastActivity = multi.timeouts.now }
    }
}

// MARK: - What libcurl's callbacks call

extension RunningTransfer {
    func takeHeadLine(_ line: [UInt8]) -> Bool {
        lastActivity = multi.timeouts.now
        let kind = parser.take(line)
        // libcurl would follow a 304, too.
        if kind == .status, 300..<400 ~= parser.status, !parser.isRedirect { easy?.stopFollowingRedirects() }
        if kind == .tooLarge { refusal = .invalidResponse }
        return kind == .end ? takeHead() : kind != .tooLarge
    }

    private func takeHead() -> Bool {
        touch()
        if parser.hasTwoLengths {
            refusal = .invalidResponse
            return false
        }
        if configuration.maxRedirects > 0, parser.redirects {
            if parser.status == 303 { easy?.resetMethod() }
            return true
        }
        let response = HTTPResponse(
            status: parser.status, fields: parser.fields,
            url: easy?.text(CURLINFO_EFFECTIVE_URL) ?? transfer.request.url, version: parser.version)
        self.response = response
        isDecoding = easy?.decodes == true && response.fields["Content-Encoding"] != nil
        switch sink.begin(response) {
        case .accepts(let expected, let offset):
            // The length of a body that is not sent.
            let isEmpty = transfer.request.method == "HEAD" || response.status == 304
            noteLength(isEmpty ? 0 : expected, resumedAt: offset)
        case .ignores(let offset):
            isBodyIgnored = true
            noteLength(offset, resumedAt: offset)
        case .refuses(let kind):
            refusal = kind
            return false
        case .restarts:
            (refusal, restartsAtOnce) = (.truncated, true)
            return false
        }
        return true
    }

    private func noteLength(_ expected: Int?, resumedAt offset: Int) {
        transfer.outbox.update {
            ($0.bytesExpected, $0.bytesReceived, $0.bytesResumed) = (expected, offset, offset)
        }
    }

    /// The number of bytes that were accepted, or that the transfer pauses.
    func takeBody(_ bytes: RawSpan) -> Int {
        let count = bytes.byteCount
        touch()
        if isBodyIgnored { return count }
        guard takesAll || canReceive && multi.receiveBudget > 0 else {
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
            case .failed(let kind):
                refusal = kind
                return Int(CURL_READFUNC_ABORT)
            case .waiting: break
            }
        }
        isSendingPaused = true
        return Int(CURL_READFUNC_PAUSE)
    }

    func rewindUpload() -> Bool {
        transfer.outbox.update { $0.bytesSent = 0 }
        guard upload?.rewind() == true else {
            refusal = .bodyNotRepeatable
            return false
        }
        return true
    }

    func beginConnecting() {
        if case .connecting = state { return }
        state = .connecting(since: multi.timeouts.now)
        multi.timeouts.expect(configuration.connectTimeout)
    }

    /// `number` is the error if there is no socket.
    func connects(with socket: CInt, _ number: CInt) {
        beginConnecting()
        socketFault = socket < 0 ? Errno(rawValue: number) : nil
        if socket >= 0 { multi.sockets.noteConnection(socket) }
    }

    /// Called before the transfer's request, and before each that libcurl makes for a redirect. False ends the transfer.
    func hasConnected() -> Bool {
        state = .transferring
        // libcurl follows a redirect also if the connection has ended before its head.
        if parser.isInHead {
            refusal = .connectionLost
            return false
        }
        parser = HTTPResponse.HeadParser()
        lastActivity = multi.timeouts.now
        multi.timeouts.expect(configuration.idleTimeout)
        guard !configuration.followsInsecureRedirects, easy?.hasURL("https:") == true else { return true }
        // From here on: an earlier request may have been sent without TLS.
        return easy?.forbidPlainRedirects() == CURLE_OK
    }
}
