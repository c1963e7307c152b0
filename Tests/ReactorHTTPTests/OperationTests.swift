import Reactor
import ReactorFoundation
import ReactorHTTP
import ReactorHTTPFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct OperationTests {
    @Test func `a transfer is an operation`() throws {
        let server = try TestServer.sized(5)
        try withNetwork { session in
            let operation = HTTPOperation(HTTPRequest(server.url), in: session)
            #expect(operation.transfer == nil)
            let start = Deadline.now
            OperationQueue().addOperations([operation], waitUntilFinished: true)
            let transfer = try #require(operation.transfer)
            #expect(transfer.progress.bytesReceived == 5 && transfer.startDate > start)
            #expect(operation.response?.body.count == 5)
            #expect(operation.progress.fractionCompleted == 1)
            try operation.result?.get()
        }
    }

    @Test func `a failed transfer fails its operation`() throws {
        let server = try TestServer.sending("")
        try withNetwork { session in
            let operation = HTTPOperation(HTTPRequest(server.url), in: session)
            OperationQueue().addOperations([operation], waitUntilFinished: true)
            let error = #expect(throws: HTTPError.self) { try operation.result?.get() }
            #expect(error?.kind == .connectionLost)
        }
    }

    @Test func `a transfer is cancelled before it starts, while it runs, and after`() throws {
        let (requested, gate) = (Answer<Bool>(), Answer<Bool>())
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            requested.give(true)
            _ = gate.wait()
        }
        try withNetwork { session in
            let early = HTTPOperation(HTTPRequest(server.url), in: session)
            early.cancel()
            OperationQueue().addOperations([early], waitUntilFinished: true)
            #expect(throws: CancellationError.self) { try early.result?.get() }

            let operation = HTTPOperation(HTTPRequest(server.url), in: session)
            OperationQueue().addOperation(operation)
            _ = requested.wait()
            operation.cancel()
            operation.waitUntilFinished()
            let error = #expect(throws: HTTPError.self) { try operation.result?.get() }
            #expect(error?.kind == .cancelled)
            operation.cancel()
            #expect(operation.isFinished)
            gate.give(true)
        }
    }

    @Test(arguments: ["GET", "HEAD"])
    func `an empty body completes the progress of its operation`(method: String) throws {
        let server = try TestServer.responding { _, _ in response() }
        try withNetwork { session in
            let operation = HTTPOperation(HTTPRequest(server.url, method: method), in: session)
            OperationQueue().addOperations([operation], waitUntilFinished: true)
            try operation.result?.get()
            #expect(operation.progress.fractionCompleted == 1 && operation.progress.isFinished)
        }
    }
}
