import CReactorLibcurl
import Glibc
import Reactor

// libcurl's callbacks of one transfer. Their context is the ``RunningTransfer``, which owns the handle.

extension RunningTransfer {
    static var callbacks: reactor_curl_callbacks {
        unsafe reactor_curl_callbacks(
            header: { bytes, _, count, context in
                let line = unsafe Array(UnsafeRawBufferPointer(start: bytes, count: count))
                return runningTransfer(context).takeHeadLine(line) ? count : count + 1
            },
            body: { bytes, _, count, context in
                runningTransfer(context).takeBody(
                    unsafe UnsafeRawBufferPointer(start: bytes, count: count).bytes)
            },
            upload: uploadCallback, seek: seekCallback,
            resolve: { _, _, context in
                runningTransfer(context).beginConnecting()
                return 0
            },
            open: { context, _, address in
                let socket = unsafe reactor_curl_open(address)
                runningTransfer(context).connects(with: socket, socket < 0 ? errno : 0)
                return socket
            },
            connected: { context, _, _, _, _ in
                runningTransfer(context).hasConnected() ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
            })
    }
}

/// `@safe`: only the callbacks above call it, with the context that was set for them.
@safe
private func runningTransfer(_ context: UnsafeMutableRawPointer?) -> RunningTransfer {
    unsafe CallbackContext.object(context)
}

private let uploadCallback: curl_read_callback = { buffer, size, count, context in
    var span = unsafe UnsafeMutableRawBufferPointer(start: buffer, count: size * count).mutableBytes
    return runningTransfer(context).fillUpload(&span)
}

private let seekCallback: curl_seek_callback = { context, offset, origin in
    let isStart = offset == 0 && origin == SEEK_SET
    return isStart && runningTransfer(context).rewindUpload() ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL
}

// MARK: - What the callbacks do

extension RunningTransfer {
    func takeHeadLine(_ line: [UInt8]) -> Bool {
        timeouts.lastActivity = multi.timeouts.now
        let kind = attempt.parser.take(line)
        // libcurl would follow a 304, too.
        if kind == .status, 300..<400 ~= attempt.parser.status, !attempt.parser.isRedirect {
            easy?.stopFollowingRedirects()
        }
        if kind == .tooLarge { attempt.refusal = .invalidResponse }
        return kind == .end ? takeHead() : kind != .tooLarge
    }

    private func takeHead() -> Bool {
        noteActivity()
        if attempt.parser.hasTwoLengths {
            attempt.refusal = .invalidResponse
            return false
        }
        if configuration.maxRedirects > 0, attempt.parser.redirects {
            if attempt.parser.status == 303 { easy?.resetMethod() }
            return true
        }
        let response = HTTPTransfer.Response(
            head: attempt.parser.head, url: easy?.text(CURLINFO_EFFECTIVE_URL) ?? transfer.request.target,
            version: attempt.parser.version)
        attempt.response = response
        attempt.isDecoding = easy?.decodes == true && response.headerFields.contains(.contentEncoding)
        switch sink.begin(response) {
        case .accepts(let expected, let offset):
            // The length of a body that is not sent.
            let isEmpty = transfer.request.method == .head || response.status == 304
            noteLength(isEmpty ? 0 : expected, resumedAt: offset)
        case .ignores(let offset):
            attempt.isBodyIgnored = true
            noteLength(offset, resumedAt: offset)
        case .refuses(let kind):
            attempt.refusal = kind
            return false
        case .restarts:
            (attempt.refusal, attempt.restartsAtOnce) = (.truncated, true)
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
        noteActivity()
        if attempt.isBodyIgnored { return count }
        guard takesAll || canReceive && multi.receiveBudget > 0 else {
            attempt.isReceivingPaused = true
            return Int(CURL_WRITEFUNC_PAUSE)
        }
        multi.receiveBudget -= count
        sink.receive(bytes)
        if let failure = sink.failure {
            attempt.refusal = failure
            return count == 0 ? 1 : 0
        }
        unreportedCount += count
        return count
    }

    func fillUpload(_ buffer: inout MutableRawSpan) -> Int {
        noteActivity()
        guard let upload, attempt.refusal == nil else {
            return attempt.refusal == nil ? 0 : Int(CURL_READFUNC_ABORT)
        }
        if !isSuspended {
            switch upload.take(into: &buffer) {
            case .bytes(let count):
                transfer.outbox.update { $0.bytesSent += count }
                return count
            case .failed(let kind):
                attempt.refusal = kind
                return Int(CURL_READFUNC_ABORT)
            case .waiting: break
            }
        }
        attempt.isSendingPaused = true
        return Int(CURL_READFUNC_PAUSE)
    }

    func rewindUpload() -> Bool {
        transfer.outbox.update { $0.bytesSent = 0 }
        guard upload?.rewind() == true else {
            attempt.refusal = .bodyNotRepeatable
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
        attempt.socketFault = socket < 0 ? Errno(rawValue: number) : nil
        if socket >= 0 { multi.sockets.noteConnection(socket) }
    }

    /// Called before the transfer's request, and before each that libcurl makes for a redirect. False ends the transfer.
    func hasConnected() -> Bool {
        state = .transferring
        // libcurl follows a redirect also if the connection has ended before its head.
        if attempt.parser.isInHead {
            attempt.refusal = .connectionLost
            return false
        }
        attempt.parser = HeadParser()
        timeouts.lastActivity = multi.timeouts.now
        multi.timeouts.expect(configuration.idleTimeout)
        guard !configuration.followsInsecureRedirects, easy?.hasURL("https:") == true else { return true }
        // From here on: an earlier request may have been sent without TLS.
        return easy?.forbidPlainRedirects() == CURLE_OK
    }
}
