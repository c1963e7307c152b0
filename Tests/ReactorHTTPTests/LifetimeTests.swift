import Dispatch
import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// Cancelling, ending sessions, and what is released when.
@Suite(.runLoop) struct LifetimeTests {
    /// Sends bodies without an end.
    private static func endless() throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send("HTTP/1.1 200 OK\r\n\r\n")
            let piece = [UInt8](repeating: 97, count: 65_536)
            while peer.send(piece) {}
        }
    }

    @Test(arguments: ["before", "head", "bytes", "twice", "thread"])
    func `a cancelled transfer completes once, and delivers nothing else`(moment: String) async throws {
        let (server, trace) = (try Self.endless(), Trace())
        try await onItsOwnThread {
            let session = HTTPSession()
            let loop = RunLoop.current
            let transfer = Shared<HTTPTransfer?>(nil)
            let handler = HTTPDestination.handler { event in
                switch event {
                case .response: if moment == "head" { cancel() }
                case .bytes: cancel()
                }
            }
            @Sendable func cancel() {
                guard let transfer = transfer.value else { return trace("too early") }
                if moment == "thread" {
                    onThreads(1) { _ in transfer.cancel() }
                } else {
                    transfer.cancel()
                    if moment == "twice" { transfer.cancel() }
                }
                trace("cancelled")
            }
            transfer.value = session.start(HTTPRequest(server.url), to: handler) { outcome in
                trace("\(outcome.kind!)")
                loop.stop()
            }
            if moment == "before" { cancel() }
            loop.run { trace.all.count < 2 }
            transfer.value?.cancel()
            // Nothing keeps the mode from being empty.
            #expect(loop.run(in: .default) == .finished)
        }
        #expect(trace.all == ["cancelled", "cancelled"])
    }

    @Test func `a transfer that is cancelled with bytes undelivered does not succeed`() async throws {
        let text = String(repeating: "x", count: 500_000)
        let server = try TestServer.responding { _, _ in response(body: text) }
        let thread = try RunLoopThread(name: "network")
        let session = HTTPSession(on: thread.runLoop)
        let (began, gate, outcome, received) = (Answer<Bool>(), Answer<Bool>(), Answer<Outcome>(), Shared(0))
        let handler = HTTPDestination.handler { event in
            if case .bytes(let bytes) = event { received.update { $0 += bytes.count } }
            began.give(true)
            _ = gate.wait()
        }
        let queue = DispatchQueue(label: "slow")
        let transfer = session.start(HTTPRequest(server.url), to: handler, delivery: .queue(queue)) {
            outcome.give($0)
        }
        try await onItsOwnThread {
            _ = began.wait()
            waitUntil { transfer.progress.bytesReceived == text.utf8.count }
            // The loop has done all for the first transfer when it has completed a later one.
            let other = Answer<Outcome>()
            session.start(HTTPRequest(server.url)) { other.give($0) }
            _ = other.wait()
            transfer.cancel()
            gate.give(true)
            #expect(outcome.wait().kind == .cancelled)
            thread.stop()
        }
        #expect(received.value < text.utf8.count)
    }

    @Test func `transfers may be started by several threads at once`() async throws {
        let thread = try RunLoopThread(name: "network")
        try await onItsOwnThread {
            for _ in 0..<300 {
                let (session, group) = (HTTPSession(on: thread.runLoop), DispatchGroup())
                onThreads(3) { _ in
                    for _ in 0..<3 { session.start(HTTPRequest("nonsense"), group: group) { _ in } }
                }
                group.wait()
                let outcome = Answer<Outcome>()
                session.start(HTTPRequest("nonsense")) { outcome.give($0) }
                #expect(outcome.wait().kind == .invalidURL)
            }
            thread.stop()
        }
    }

    @Test func `a transfer that cannot begin completes, but not inside start`() async throws {
        let thread = try RunLoopThread(name: "network")
        let session = HTTPSession(on: thread.runLoop)
        try await onItsOwnThread {
            thread.stop()
            let caller = pthread_self()
            for _ in 0..<2 {
                let outcome = Answer<(HTTPError.Kind?, Bool)>()
                session.start(HTTPRequest("http://127.0.0.1:1/")) { result in
                    outcome.give((result.kind, pthread_equal(pthread_self(), caller) != 0))
                }
                let (kind, isInside) = outcome.wait()
                #expect(kind == .sessionEnded)
                #expect(!isInside)
            }
        }
    }

    /// A stream of the client's that notes its end.
    private final class Uploaded: InputStream {
        var closed: Answer<Bool>?
        override func close() {
            super.close()
            closed?.give(true)
        }
    }

    @Test func `the streams of a transfer that cannot begin are closed`() async throws {
        let closed = Answer<Bool>()
        try await onItsOwnThread {
            let session = HTTPSession()
            session.invalidateAndCancel()
            let (stream, _) = session.startReading(HTTPRequest("http://127.0.0.1:1/"))
            stream.open()
            #expect(stream.read(upTo: 10).isEmpty)
            #expect((stream.streamError as? HTTPError)?.kind == .sessionEnded)

            let body = Uploaded(data: [1])
            body.closed = closed
            let request = HTTPRequest("http://127.0.0.1:1/", method: "PUT", body: .stream(body))
            #expect(session.run(request).kind == .sessionEnded)
            #expect(closed.wait())
        }
    }

    /// Streams of the client's that note where they are closed.
    private final class Upload: InputStream {
        var note: (@Sendable () -> Void)?
        override func close() {
            note?()
            super.close()
        }
    }

    private final class Download: OutputStream {
        var note: (@Sendable () -> Void)?
        override func close() {
            note?()
            super.close()
        }
    }

    @Test(arguments: [true, false])
    func `they are closed before the completion and where it is called, not inside start`(
        usesQueue: Bool
    ) {
        let (loop, queue, trace) = (RunLoop.current, DispatchQueue(label: "delivery"), Trace())
        let (isInside, wrong) = (Shared(true), Shared(0))
        let note: @Sendable (String) -> Void = { name in
            if usesQueue ? loop.isCurrent : isInside.value { wrong.update { $0 += 1 } }
            trace(name)
        }
        let (upload, download) = (Upload(data: [1]), Download())
        upload.note = { note("upload") }
        download.note = { note("download") }
        let session = HTTPSession()
        session.invalidateAndCancel()
        let isDone = Answer<Bool>()
        session.start(
            HTTPRequest("http://127.0.0.1:1/", method: "PUT", body: .stream(upload)),
            to: .stream(download), delivery: usesQueue ? .queue(queue) : .session
        ) { _ in
            note("end")
            isDone.give(true)
            loop.stop()
        }
        isInside.value = false
        if !usesQueue { loop.run { trace.all.count < 3 } }
        #expect(isDone.wait())
        #expect(trace.all == ["download", "upload", "end"])
        #expect(wrong.value == 0)
    }

    @Test func `a stream that cannot be sent is closed`() async throws {
        let closed = Answer<Bool>()
        try await onItsOwnThread {
            let body = Uploaded(data: [1])
            body.closed = closed
            let request = HTTPRequest("nonsense", method: "PUT", body: .stream(body))
            #expect(HTTPSession().run(request).kind == .invalidURL)
            #expect(closed.wait())
        }
    }

    @Test func `transfers may be cancelled at any moment by any thread`() async throws {
        let server = try TestServer.responding { _, _ in
            response(body: String(repeating: "x", count: 300_000))
        }
        let thread = try RunLoopThread(name: "network")
        let session = HTTPSession(on: thread.runLoop)
        let (group, count) = (DispatchGroup(), Shared(0))
        let queue = DispatchQueue(label: "delegate", attributes: .concurrent)
        try await onItsOwnThread {
            var random = SeededGenerator(seed: 7)
            for number in 0..<100 {
                let transfer = session.start(
                    HTTPRequest(server.url), to: number % 2 == 0 ? .memory() : .handler { _ in },
                    delivery: number % 3 == 0 ? .queue(queue) : .session, group: group
                ) { outcome in
                    if case .failure(let error) = outcome { #expect(error.kind == .cancelled) }
                    count.update { $0 += 1 }
                }
                for _ in 0..<random.next(upperBound: UInt(20_000)) { _ = transfer.progress }
                transfer.cancel()
            }
            group.wait()
            thread.stop()
        }
        #expect(count.value == 100)
    }

    @Test func `callbacks may start, cancel and suspend transfers, and run the loop`() async throws {
        let server = try TestServer.responding { _, _ in
            response(body: String(repeating: "x", count: 100_000))
        }
        let trace = Trace()
        try await onItsOwnThread {
            let session = HTTPSession()
            let loop = RunLoop.current
            let transfers = Shared<[HTTPTransfer]>([])
            @Sendable func nested(_ name: String) {
                let other = session.start(HTTPRequest(server.url)) { _ in trace("wrong") }
                other.suspend()
                other.cancel()
                let outcome = session.run(HTTPRequest(server.url))
                trace(outcome.body?.count == 100_000 ? name : "\(outcome)")
            }
            let handler = HTTPDestination.handler { event in
                if case .response = event { nested("head") } else { transfers.value.first?.suspend() }
                transfers.value.first?.resume()
            }
            transfers.value = [
                session.start(HTTPRequest(server.url), to: handler) { _ in
                    nested("completion")
                    trace("end")
                    loop.stop()
                }
            ]
            loop.run { trace.all.last != "end" }
        }
        #expect(trace.all.filter { $0 != "wrong" } == ["head", "completion", "end"])
    }

    @Test(arguments: [true, false])
    func `a session may be ended by any callback of its transfers`(inHead: Bool) async throws {
        let (server, trace) = (try Self.endless(), Trace())
        try await onItsOwnThread {
            let session = HTTPSession()
            let loop = RunLoop.current
            let handler = HTTPDestination.handler { event in
                if case .response = event, !inHead { return }
                session.invalidateAndCancel()
            }
            for number in 0..<3 {
                session.start(HTTPRequest(server.url), to: handler) { outcome in
                    trace("\(number) \(outcome.kind!)")
                    loop.stop()
                }
            }
            loop.run { trace.all.count < 3 }
            #expect(session.run(server.url).kind == .sessionEnded)
        }
        #expect(trace.all.sorted() == ["0 sessionEnded", "1 sessionEnded", "2 sessionEnded"])
    }

    @Test func `a session that finishes lets its transfers complete, then closes its connections`()
        async throws
    {
        let (closed, gate) = (Answer<Bool>(), Answer<Bool>())
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            _ = gate.wait()
            peer.send(response(body: "hello"))
            peer.waitForEnd()
            closed.give(true)
        }
        let body = Shared<String?>(nil)
        try await onItsOwnThread {
            let loop = RunLoop.current
            let session = HTTPSession()
            session.start(HTTPRequest(server.url)) { outcome in
                body.value = outcome.body
                loop.stop()
            }
            session.finishAndInvalidate()
            gate.give(true)
            loop.run { body.value == nil }
            #expect(closed.wait())
        }
        #expect(body.value == "hello")
    }

    @Test func `releasing a session closes its connections and releases its callbacks`() async throws {
        let closed = Answer<Bool>()
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send(response(body: "hello"))
            peer.waitForEnd()
            closed.give(true)
        }
        try await onItsOwnThread {
            let loop = RunLoop.current
            var session: HTTPSession? = HTTPSession()
            var witness: Witness? = Witness()
            let fate = Fate(witness!)
            let isDone = Shared(false)
            session?.start(HTTPRequest(server.url)) { [witness] _ in
                withExtendedLifetime(witness) { isDone.value = true }
                loop.stop()
            }
            witness = nil
            loop.run { !isDone.value }
            #expect(fate.isFreed)
            session = nil
            #expect(closed.wait())
        }
    }

    @Test func `transfers fail when their loop's thread ends`() async throws {
        let server = try Self.endless()
        let (started, outcome) = (Answer<Bool>(), Answer<Outcome>())
        let thread = try RunLoopThread(name: "network")
        let session = HTTPSession(on: thread.runLoop)
        let handler = HTTPDestination.handler { event in if case .response = event { started.give(true) } }
        session.start(HTTPRequest(server.url), to: handler) { outcome.give($0) }
        try await onItsOwnThread {
            #expect(started.wait())
            thread.stop()
            #expect(outcome.wait().kind == .sessionEnded)
            let later = Answer<Outcome>()
            session.start(HTTPRequest(server.url)) { later.give($0) }
            #expect(later.wait().kind == .sessionEnded)
        }
    }

    @Test func `a slow consumer pauses its transfer`() async throws {
        let (sent, thread) = (Shared(0), Answer<KernelThread>())
        let size = 64 << 20
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            thread.give(.current)
            let piece = [UInt8](repeating: 97, count: 65_536)
            for _ in 0..<size / 65_536 where peer.send(piece) { sent.update { $0 += 65_536 } }
        }
        let gate = Answer<Bool>()
        let (received, loopThread) = (Shared(0), Answer<KernelThread>())
        let network = try RunLoopThread(name: "network")
        network.runLoop.perform { loopThread.give(.current) }
        let session = HTTPSession(on: network.runLoop)
        let outcome = Answer<Outcome>()
        let handler = HTTPDestination.handler { event in
            guard case .bytes(let bytes) = event else { return }
            _ = gate.wait()
            received.update { $0 += bytes.count }
        }
        let queue = DispatchQueue(label: "slow")
        session.start(HTTPRequest(server.url), to: handler, delivery: .queue(queue)) { outcome.give($0) }
        try await onItsOwnThread {
            let (server, loop) = (thread.wait(), loopThread.wait())
            // The server cannot send more, and the loop has nothing to do: nothing will change.
            waitUntil {
                let before = sent.value
                return before > 0 && server.isAsleep && loop.isAsleep && sent.value == before
            }
            #expect(sent.value < size / 2)
            gate.give(true)
            #expect(outcome.wait().kind == nil)
            network.stop()
        }
        #expect(received.value == size)
    }
}
