import CReactorLibcurl
import Glibc
import Reactor

/// The record that libcurl's callbacks keep of one attempt of a transfer.
struct Attempt {
    var parser = HeadParser()
    var response: HTTPTransfer.Response?
    /// Why a callback has ended the attempt.
    var refusal: HTTPError.Kind?
    /// Why no socket could be made.
    var socketFault: Errno?
    /// Whether the request is sent again at once, as the sink prepares it then.
    var restartsAtOnce = false
    /// Whether libcurl holds bytes until it is told to continue.
    var isReceivingPaused = false
    var isSendingPaused = false
    /// Whether the body is not what the sink wants.
    var isBodyIgnored = false
    /// Whether libcurl decompresses the body.
    var isDecoding = false
}

// MARK: - Errors of attempts

extension RunningTransfer {
    /// The error of an attempt that libcurl has ended with `code`; nil if it has succeeded.
    func error(_ code: CURLcode) -> HTTPError? {
        reportProgress()
        if let refusal = attempt.refusal { return error(refusal, reason: attempt.parser.fault) }
        guard code != CURLE_OK else { return incompleteness.map { error($0) } }
        let kind = kind(of: code)
        // libcurl says that it has no memory.
        if case .bodyTooLarge = kind { return error(kind) }
        let errno = code == CURLE_COULDNT_CONNECT ? connectErrno : nil
        return error(kind, reason: easy?.reason(code), errno: errno)
    }

    /// The fault of a response that libcurl accepts. It accepts a head that the end of the connection has cut.
    private var incompleteness: HTTPError.Kind? {
        if attempt.response == nil { return attempt.parser.hasEnded ? .invalidResponse : .connectionLost }
        return sink.isWhole ? nil : .truncated
    }

    /// Why no connection could be made. Of a connection that has been made, it may belong to another address.
    private var connectErrno: Errno? {
        let number = easy?.number(CURLINFO_OS_ERRNO) ?? 0
        return attempt.socketFault ?? (number == 0 ? nil : Errno(rawValue: CInt(number)))
    }

    private func kind(of code: CURLcode) -> HTTPError.Kind {
        if code == CURLE_OUT_OF_MEMORY, attempt.isDecoding, attempt.isReceivingPaused {
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
        return attempt.parser.redirects && easy?.hasURL("http:") == true
            ? .insecureRedirect : .invalidResponse
    }
}
