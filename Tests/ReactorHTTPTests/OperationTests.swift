import Reactor
import ReactorFoundation
import ReactorHTTP
import ReactorHTTPFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct OperationTests {
    /// Calls `body` with an operation for a transfer on another thread.
    private func withOperation(
        _ server: TestServer, method: HTTPRequest.Method = .get, _ body: (HTTPOperation) throws -> Void
    ) throws {
        try withNetwork { try body(HTTPOperation(HTTPRequest(server.url, method: method), in: $0)) }
    }

    @Test func `a request is made for a URL of Foundation's`() throws {
        let url = try #require(URL(string: "b?c=d#e", relativeTo: URL(string: "http://a:1/")))
        let request = HTTPRequest(url, method: .put, headerFields: [.accept: "*/*"])
        #expect(request == HTTPRequest("http://a:1/b?c=d", method: .put, headerFields: [.accept: "*/*"]))
    }

    private func run(_ operation: Operation) {
        OperationQueue().addOperations([operation], waitUntilFinished: true)
    }

    @Test(arguments: [(.get, 5), (.get, 0), (.head, 0)] as [(HTTPRequest.Method, Int)])
    func `a transfer is an operation`(method: HTTPRequest.Method, size: Int) throws {
        try withOperation(.sized(size), method: method) { operation in
            #expect(operation.transfer == nil)
            let start = Deadline.now
            run(operation)
            let transfer = try #require(operation.transfer)
            #expect(transfer.progress.bytesReceived == size && transfer.startDate > start)
            #expect(operation.response?.body.count == size)
            #expect(operation.progress.fractionCompleted == 1 && operation.progress.isFinished)
            try operation.result?.get()
        }
    }

    @Test func `a failed transfer fails its operation`() throws {
        try withOperation(.sending("")) { operation in
            run(operation)
            let error = #expect(throws: HTTPError.self) { try operation.result?.get() }
            #expect(error?.kind == .connectionLost)
        }
    }

    @Test func `a transfer is cancelled before it starts, while it runs, and after`() throws {
        let requested = Answer<Bool>()
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            requested.give(true)
            peer.waitForEnd()
        }
        try withOperation(server) { early in
            early.cancel()
            run(early)
            #expect(throws: CancellationError.self) { try early.result?.get() }
        }
        try withOperation(server) { operation in
            OperationQueue().addOperation(operation)
            _ = requested.wait()
            operation.cancel()
            operation.waitUntilFinished()
            let error = #expect(throws: HTTPError.self) { try operation.result?.get() }
            #expect(error?.kind == .cancelled)
            operation.cancel()
            #expect(operation.isFinished)
        }
    }
}
