import Dispatch
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct DelegateTests {
    /// Records the events of its transfers, each under its request's path.
    private final class Recorder: HTTPTransferDelegate {
        let events = Trace()
        private let action: @Sendable (_ event: String, HTTPTransfer, _ path: String) -> Void

        init(_ action: @escaping @Sendable (String, HTTPTransfer, String) -> Void) { self.action = action }

        private func note(_ event: String, _ transfer: HTTPTransfer) {
            let path = String(transfer.request.url.split(separator: "/").last ?? "")
            events("\(path) \(event)")
            action(event, transfer, path)
        }

        func transfer(_ transfer: HTTPTransfer, didReceive response: HTTPResponse) {
            note("response", transfer)
        }
        func transfer(_ transfer: HTTPTransfer, didReceive bytes: [UInt8]) { note("bytes", transfer) }
        func transfer(_ transfer: HTTPTransfer, didReach progress: HTTPTransfer.Progress) {
            note("progress", transfer)
        }
        func transfer(_ transfer: HTTPTransfer, didCompleteWith result: Outcome) {
            note(result.kind == nil ? "success" : "\(result.kind!)", transfer)
        }
    }

    private static func server() throws -> TestServer {
        try TestServer.responding { _, _ in response(body: String(repeating: "x", count: 100_000)) }
    }

    @Test func `a delegate receives the head, the bytes and the end, in this order`() async throws {
        let server = try Self.server()
        let recorder = Recorder { event, _, _ in if event == "success" { RunLoop.current.stop() } }
        try await onItsOwnThread {
            HTTPSession().start(HTTPRequest(server.url + "/a"), delegate: recorder)
            RunLoop.current.run { recorder.events.all.last != "a success" }
        }
        let events = recorder.events.all.filter { $0 != "a progress" }
        #expect(events.first == "a response")
        #expect(events.dropFirst().dropLast().allSatisfy { $0 == "a bytes" })
        #expect(events.count > 2)
        #expect(recorder.events.all.contains("a progress"))
    }

    @Test func `a handler receives the body in place of a delegate`() async throws {
        let server = try Self.server()
        let recorder = Recorder { event, _, _ in if event == "success" { RunLoop.current.stop() } }
        let count = Shared(0)
        try await onItsOwnThread {
            let handler = HTTPDestination.handler { event in
                if case .bytes(let bytes) = event { count.update { $0 += bytes.count } }
            }
            HTTPSession().start(HTTPRequest(server.url + "/a"), to: handler, delegate: recorder)
            RunLoop.current.run { recorder.events.all.last != "a success" }
        }
        #expect(count.value == 100_000)
        #expect(Set(recorder.events.all) == ["a progress", "a success"])
    }

    @Test func `a delegate of a download receives progress and the end on its queue`() async throws {
        let (server, folder) = (try Self.server(), TemporaryFolder())
        let (network, group) = (try RunLoopThread(name: "network"), DispatchGroup())
        let queue = DispatchQueue(label: "delegate")
        let wrong = Shared(0)
        let recorder = Recorder { _, _, _ in
            dispatchPrecondition(condition: .onQueue(queue))
            if network.runLoop.isCurrent { wrong.update { $0 += 1 } }
        }
        let session = HTTPSession(on: network.runLoop)
        session.start(
            HTTPRequest(server.url + "/a"), to: .file(folder.path.appending("file")), delivery: .queue(queue),
            group: group, delegate: recorder)
        try await onItsOwnThread {
            group.wait()
            network.stop()
        }
        #expect(Set(recorder.events.all) == ["a progress", "a success"])
        #expect(recorder.events.all.last == "a success")
        #expect(wrong.value == 0)
        #expect(folder.names == ["file"])
    }

    @Test func `a delegate is released after its last method`() async throws {
        let server = try Self.server()
        try await onItsOwnThread {
            let (witness, session) = (Shared<Witness?>(Witness()), HTTPSession())
            let fate = Fate(witness.value!)
            start(session, witness.value!)
            witness.value = nil
            RunLoop.current.run { !fate.isFreed }
        }

        @Sendable func start(_ session: HTTPSession, _ witness: Witness) {
            let recorder = Recorder { event, _, _ in
                withExtendedLifetime(witness) {}
                // Runs the loop until the method has returned.
                if event == "success" { RunLoop.current.perform { RunLoop.current.stop() } }
            }
            session.start(HTTPRequest(server.url), delegate: recorder)
        }
    }

    /// In one event of the first transfer, the delegate cancels another transfer, starts two, and ends the session or not.
    @Test(arguments: ["response", "bytes", "progress", "success"], [false, true])
    func `a delegate may cancel, start and end in each method`(event: String, onQueue: Bool) async throws {
        for endsSession in [false, true] {
            let server = try Self.server()
            let (network, group, hasActed) = (
                try RunLoopThread(name: "network"), DispatchGroup(), Shared(false)
            )
            let queue = DispatchQueue(label: "delegate")
            let delivery = onQueue ? HTTPDelivery.queue(queue) : .session
            let session = HTTPSession(on: network.runLoop)
            let (delegate, second) = (Shared<Recorder?>(nil), Shared<HTTPTransfer?>(nil))
            @Sendable func start(_ path: String) -> HTTPTransfer {
                let request = HTTPRequest("\(server.url)/\(path)")
                return session.start(request, delivery: delivery, group: group, delegate: delegate.value!)
            }
            let recorder = Recorder { name, transfer, path in
                guard name == event, path == "1", !hasActed.value else { return }
                hasActed.value = true
                second.value?.cancel()
                _ = start("3")
                start("4").cancel()
                transfer.suspend()
                transfer.resume()
                if endsSession { session.invalidateAndCancel() } else { transfer.cancel() }
                if endsSession { _ = start("5") }
            }
            delegate.value = recorder
            second.value = start("2")
            _ = start("1")
            try await onItsOwnThread {
                group.wait()
                network.stop()
            }
            delegate.value = nil
            for path in ["1", "2", "3", "4"] + (endsSession ? ["5"] : []) {
                let events = recorder.events.all.filter { $0.hasPrefix(path) }.map { $0.dropFirst(2) }
                let ends = events.filter { !["response", "bytes", "progress"].contains($0) }
                #expect(ends.count == 1 && ends.first == events.last, "\(path): \(events)")
            }
            let ends = recorder.events.all
            #expect(ends.contains("4 cancelled") || endsSession && ends.contains("4 sessionEnded"))
            #expect(ends.contains("3 success") || endsSession && ends.contains("3 sessionEnded"))
            #expect(!endsSession || ends.contains("5 sessionEnded"))
        }
    }
}
