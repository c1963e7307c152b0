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

        /// Stops the loop at the end of a transfer, when the method has returned.
        convenience init() {
            self.init { event, _, _ in
                if event == "success" { RunLoop.current.perform { RunLoop.current.stop() } }
            }
        }

        private func note(_ event: String, _ transfer: HTTPTransfer) {
            let path = String(transfer.request.path?.split(separator: "/").last ?? "")
            events("\(path) \(event)")
            action(event, transfer, path)
        }

        func transfer(_ transfer: HTTPTransfer, didReceive response: HTTPTransfer.Response) {
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

    private let server: TestServer

    init() throws { server = try .sized(100_000) }

    @Test func `a delegate receives the head, the bytes and the end, in this order`() {
        let recorder = Recorder()
        HTTPSession().start(HTTPRequest(server.url + "/a"), delegate: recorder)
        RunLoop.current.run { recorder.events.all.last != "a success" }
        let events = recorder.events.all.filter { $0 != "a progress" }
        #expect(events.count > 2 && events.count < recorder.events.all.count)
        #expect(events.first == "a response" && events.last == "a success")
        #expect(events.dropFirst().dropLast().allSatisfy { $0 == "a bytes" })
    }

    @Test func `a delegate of a download receives progress and the end on its queue`() throws {
        let (folder, group, queue) = (TemporaryFolder(), DispatchGroup(), DispatchQueue(label: "delegate"))
        let recorder = Recorder { _, _, _ in dispatchPrecondition(condition: .onQueue(queue)) }
        try withNetwork { session in
            session.start(
                HTTPRequest(server.url + "/a"), to: .file(folder.path.appending("file")),
                delivery: .queue(queue), group: group, delegate: recorder)
            group.wait()
        }
        #expect(Set(recorder.events.all) == ["a progress", "a success"])
        #expect(recorder.events.all.last == "a success")
        #expect(folder.names == ["file"])
    }

    @Test func `a delegate is released after its last method`() {
        weak var recorder: Recorder?
        func start(in session: HTTPSession) {
            let strong = Recorder()
            recorder = strong
            session.start(HTTPRequest(server.url), delegate: strong)
        }
        let session = HTTPSession()
        start(in: session)
        RunLoop.current.run { recorder != nil }
    }

    /// In one event of the first transfer, the delegate cancels another transfer, starts two, and ends the session or not.
    @Test(arguments: ["response", "bytes", "progress", "success"], [false, true])
    func `a delegate may cancel, start and end in each method`(event: String, onQueue: Bool) throws {
        for endsSession in [false, true] {
            try withNetwork { session in
                let events = actAndEnd(in: session, at: event, onQueue: onQueue, endsSession: endsSession)
                for path in ["1", "2", "3", "4"] + (endsSession ? ["5"] : []) {
                    let events = events.filter { $0.hasPrefix(path) }.map { $0.dropFirst(2) }
                    let ends = events.filter { !["response", "bytes", "progress"].contains($0) }
                    #expect(ends.count == 1 && ends.first == events.last, "\(path): \(events)")
                }
                let end = endsSession ? " sessionEnded" : ""
                #expect(events.contains("4 cancelled") || events.contains("4" + end))
                #expect(events.contains("3 success") || events.contains("3" + end))
                #expect(!endsSession || events.contains("5 sessionEnded"))
            }
        }
    }

    /// The events of all transfers of such a delegate.
    private func actAndEnd(
        in session: HTTPSession, at event: String, onQueue: Bool, endsSession: Bool
    ) -> [String] {
        let (group, hasActed) = (DispatchGroup(), Shared(false))
        let delivery = onQueue ? HTTPDelivery.queue(DispatchQueue(label: "delegate")) : .session
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
        group.wait()
        delegate.value = nil
        return recorder.events.all
    }
}

/// What a transfer says of its silence.
@Suite(.runLoop) struct ExplanationTests {
    /// Runs the loop until the explanation of `transfer`, which is read in each pass, contains `text`.
    private static func wait(for text: String, from transfer: HTTPTransfer) {
        let (loop, isMet) = (RunLoop.current, Shared(false))
        let observer = RunLoop.Observer(for: .beforeWaiting) { _, _ in
            guard transfer.explain().contains(text) else { return }
            isMet.value = true
            loop.stop()
        }
        loop.add(observer, forMode: .default)
        loop.run { !isMet.value }
        observer.invalidate()
    }

    @Test func `a transfer tells how far it is, that it is suspended, and that it has ended`() throws {
        let gate = Answer<Bool>()
        let server = try TestServer.halting(until: gate, "abc", "defg")
        let launch = HTTPSession().launch(server.url)
        let transfer = launch.transfer
        Self.wait(for: "3 bytes of 7", from: transfer)
        #expect(transfer.explain().contains(server.url))
        transfer.suspend()
        #expect(transfer.explain().contains("resume()"))
        transfer.resume()
        gate.give(true)
        #expect(launch.wait().kind == nil)
        #expect(transfer.explain().contains("ended"))
    }

    @Test func `a transfer names the mode that pauses it, or says that its loop does not run`() throws {
        let (server, loop) = (try TestServer.sized(5), RunLoop.current)
        let launch = HTTPSession(inModes: [.default]).launch(server.url)
        let explanation = launch.transfer.explain()
        #expect(explanation.contains("not running"))
        Timer.scheduled(after: .zero, forMode: .tracking) { [transfer = launch.transfer] _ in
            #expect(transfer.explain().contains("tracking") && transfer.explain().contains("default"))
            loop.stop()
        }
        loop.run(in: .tracking)
        #expect(launch.wait().kind == nil)
    }

    @Test func `transfers tell what they wait for: others of their host, a queue, the next attempt`() throws {
        let (gate, queue) = (Answer<Bool>(), DispatchQueue(label: "slow callbacks"))
        let server = try TestServer.halting(until: gate)
        let session = HTTPSession {
            $0.maxConnectionsPerHost = 1
            ($0.retries, $0.retryDelay) = (1, .seconds(1000))
        }
        queue.suspend()
        let first = session.start(
            HTTPRequest(server.url), to: .handler { _ in }, delivery: .queue(queue)
        ) { _ in }
        Self.wait(for: "'slow callbacks'", from: first)
        Self.wait(for: "maxConnectionsPerHost", from: session.launch(server.url).transfer)
        let closed = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress
        let third = session.launch("http://\(closed)/")
        Self.wait(for: "again", from: third.transfer)
        session.invalidateAndCancel()
        #expect(third.wait().kind == .sessionEnded)
        gate.give(true)
        queue.resume()
    }
}
