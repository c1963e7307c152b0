import Reactor
import ReactorHTTP
import ReactorTestSupport

typealias Outcome = Result<HTTPResponse, HTTPError>

extension RunLoop {
    /// Runs the calling thread's loop until `condition` holds, which is checked when a callback has stopped the loop.
    func run(in mode: Mode = .default, while condition: () -> Bool) {
        while condition() { _ = run(in: mode) }
    }
}

extension HTTPSession {
    /// A session on the calling thread's loop.
    convenience init(_ configure: (inout Configuration) -> Void = { _ in }, modes: [RunLoop.Mode] = [.common])
    {
        var configuration = Configuration()
        configure(&configuration)
        self.init(configuration, on: .current, modes: modes)
    }

    /// Runs the loop, which is the calling thread's, until a transfer has completed.
    func run(
        _ request: HTTPRequest, to destination: HTTPDestination = .memory(),
        delivery: HTTPDelivery = .session,
        progress: (@Sendable (HTTPTransfer.Progress) -> Void)? = nil
    ) -> Outcome {
        let outcome = Shared<Outcome?>(nil)
        start(request, to: destination, delivery: delivery, progress: progress) { [runLoop] result in
            outcome.value = result
            runLoop.stop()
        }
        runLoop.run { outcome.value == nil }
        return outcome.value!
    }

    func run(_ url: String) -> Outcome { run(HTTPRequest(url)) }
}

extension Outcome {
    var kind: HTTPError.Kind? {
        if case .failure(let error) = self { return error.kind }
        return nil
    }

    var body: String? {
        if case .success(let response) = self { return String(decoding: response.body, as: UTF8.self) }
        return nil
    }
}
