public import Dispatch

/// Receives the events of transfers, in Cocoa's style.
///
/// Its methods are called where the transfer's ``HTTPDelivery`` says: on the session's loop, on another loop, or on a
/// queue. For one transfer they are called one after another, in order. They may start, suspend and cancel transfers, run
/// the loop, and end the session.
public protocol HTTPTransferDelegate: AnyObject, Sendable {
    /// Called with the head of the response, before its body. Called only if the body goes to the delegate: with another
    /// destination, the result at the end has the head.
    func transfer(_ transfer: HTTPTransfer, didReceive response: HTTPTransfer.Response)
    /// Called with the next bytes of the body. Until this returns they count against
    /// ``HTTPSession/Configuration/bytesInFlight``.
    func transfer(_ transfer: HTTPTransfer, didReceive bytes: [UInt8])
    /// Called after bytes have been sent or received. One call may stand for several changes.
    func transfer(_ transfer: HTTPTransfer, didReach progress: HTTPTransfer.Progress)
    /// Called once, as the last method, when the transfer has ended.
    func transfer(_ transfer: HTTPTransfer, didCompleteWith result: Result<HTTPTransfer.Response, HTTPError>)
}

extension HTTPTransferDelegate {
    /// Does nothing.
    public func transfer(_ transfer: HTTPTransfer, didReceive response: HTTPTransfer.Response) {}
    /// Does nothing.
    public func transfer(_ transfer: HTTPTransfer, didReceive bytes: [UInt8]) {}
    /// Does nothing.
    public func transfer(_ transfer: HTTPTransfer, didReach progress: HTTPTransfer.Progress) {}
}

extension HTTPSession {
    /// Starts a transfer with a delegate.
    ///
    /// - Parameters:
    ///   - request: What to send.
    ///   - body: The body of the request; nil for none.
    ///   - destination: Where the body of the response goes; nil for the delegate.
    ///   - delivery: Where the delegate's methods are called.
    ///   - group: A group that the transfer is in until the delegate's last method has returned.
    ///   - delegate: The delegate, which is retained until its last method has returned.
    /// - Returns: The transfer.
    @discardableResult
    public func start(
        _ request: HTTPRequest, body: HTTPSource? = nil, to destination: HTTPDestination? = nil,
        delivery: HTTPDelivery = .session, group: DispatchGroup? = nil, delegate: any HTTPTransferDelegate
    ) -> HTTPTransfer {
        core.start(request, body, destination ?? .handler { _ in }, delivery, group) { transfer in
            var callbacks = HTTPTransfer.Callbacks(
                progress: { delegate.transfer(transfer, didReach: $0) },
                completion: { delegate.transfer(transfer, didCompleteWith: $0) })
            callbacks.event = { event in
                switch event {
                case .response(let response): delegate.transfer(transfer, didReceive: response)
                case .bytes(let bytes): delegate.transfer(transfer, didReceive: bytes)
                }
            }
            if case .handler(let handler)? = destination?.kind { callbacks.event = handler }
            return callbacks
        }
    }
}
