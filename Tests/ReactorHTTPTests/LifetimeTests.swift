import Dispatch
import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Cancelling, ending sessions, and what is released when.
@Suite(.runLoop) struct LifetimeTests {
    // MARK: Cancelling

    @Test(arguments: ["before", "head", "bytes", "twice", "thread"])
    func `a cancelled transfer completes once, and delivers nothing else`(moment: String) throws {
        let (server, trace, loop) = (try TestServer.endless(), Trace(), RunLoop.current)
        let transfer = Shared<HTTPTransfer?>(nil)
        @Sendable func cancel() {
            guard let transfer = transfer.value else { return trace("too early") }
            if moment == "thread" { onThreads(1) { _ in transfer.cancel() } } else { transfer.cancel() }
            if moment == "twice" { transfer.cancel() }
            trace("cancelled")
        }
        let handler = HTTPDestination.handler { event in
            switch event {
            case .response: if moment == "head" { cancel() }
            case .bytes: cancel()
            }
        }
        transfer.value = HTTPSession().start(HTTPRequest(server.url), to: handler) { outcome in
            trace("\(outcome.kind!)")
            loop.stop()
        }
        if moment == "before" { cancel() }
        loop.run { trace.all.count < 2 }
        transfer.value?.cancel()
        // Nothing keeps the mode from being empty.
        #expect(loop.run(in: .default) == .finished)
        #expect(trace.all == ["cancelled", "cancelled"])
    }

    @Test func `transfers may be cancelled at any moment by any thread`() throws {
        let server = try TestServer.sized(300_000)
        let queue = DispatchQueue(label: "delegate", attributes: .concurrent)
        try withNetwork { session in
            var random = SeededGenerator(seed: 7)
            let launches = (0..<40).map { number in
                let launch = session.launch(
                    HTTPRequest(server.url), to: number % 2 == 0 ? .memory() : .handler { _ in },
                    delivery: number % 3 == 0 ? .queue(queue) : .session)
                for _ in 0..<random.next(upperBound: UInt(5000)) { _ = launch.transfer.progress }
                launch.transfer.cancel()
                return launch
            }
            for launch in launches { #expect([nil, .cancelled].contains(launch.wait().kind)) }
        }
    }

    @Test func `transfers may be started by several threads at once`() throws {
        try withNetwork { session in
            for _ in 0..<100 {
                let (other, group) = (HTTPSession(on: session.runLoop), DispatchGroup())
                onThreads(3) { _ in
                    for _ in 0..<3 { other.start(HTTPRequest("nonsense"), group: group) { _ in } }
                }
                group.wait()
                #expect(other.run("nonsense").kind == .invalidURL)
            }
        }
    }

    @Test func `callbacks may start, cancel and suspend transfers, and run the loop`() throws {
        let (server, trace) = (try TestServer.sized(100_000), Trace())
        let (session, loop, transfer) = (HTTPSession(), RunLoop.current, Shared<HTTPTransfer?>(nil))
        @Sendable func nested(_ name: String) {
            let other = session.start(HTTPRequest(server.url)) { _ in }
            other.suspend()
            other.cancel()
            let outcome = session.run(server.url)
            trace(outcome.body?.count == 100_000 ? name : "\(outcome)")
        }
        let handler = HTTPDestination.handler { event in
            if case .response = event { nested("head") } else { transfer.value?.suspend() }
            transfer.value?.resume()
        }
        transfer.value = session.start(HTTPRequest(server.url), to: handler) { _ in
            nested("completion")
            trace("end")
            loop.stop()
        }
        loop.run { trace.all.last != "end" }
        #expect(trace.all == ["head", "completion", "end"])
    }

    // MARK: Transfers that do not begin

    @Test func `a transfer that cannot begin completes, but not inside start`() throws {
        let thread = try RunLoopThread(name: "network")
        let session = HTTPSession(on: thread.runLoop)
        thread.stop()
        let caller = pthread_self()
        for _ in 0..<2 {
            let outcome = Answer<(HTTPError.Kind?, Bool)>()
            session.start(HTTPRequest("http://127.0.0.1:1/")) { result in
                outcome.give((result.kind, pthread_equal(pthread_self(), caller) != 0))
            }
            #expect(outcome.wait() == (.sessionEnded, false))
        }
    }

    /// Streams of the client's that note when they are closed.
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
    func `their streams are closed before the completion, and where it is called`(usesQueue: Bool) {
        let (loop, queue, trace) = (RunLoop.current, DispatchQueue(label: "delivery"), Trace())
        let (isInside, isDone) = (Shared(true), Answer<Bool>())
        let note: @Sendable (String) -> Void = { name in
            let isWrong = usesQueue ? loop.isCurrent : isInside.value
            trace(isWrong ? "\(name) elsewhere" : name)
        }
        let (upload, download, session) = (Upload(data: [1]), Download(), HTTPSession())
        download.note = { note("download") }
        upload.note = { note("upload") }
        session.invalidateAndCancel()
        session.start(
            HTTPRequest("http://127.0.0.1:1/", method: .put), body: .stream(upload),
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
    }

    @Test func `a stream that would be read fails, and one that cannot be sent is closed`() throws {
        let (session, closed) = (HTTPSession(), Answer<Bool>())
        session.invalidateAndCancel()
        let (stream, _) = session.startReading(HTTPRequest("http://127.0.0.1:1/"))
        stream.open()
        #expect(stream.read(upTo: 10).isEmpty)
        #expect((stream.streamError as? HTTPError)?.kind == .sessionEnded)
        let upload = Upload(data: [1])
        upload.note = { closed.give(true) }
        let request = HTTPRequest("nonsense", method: .put)
        #expect(HTTPSession().run(request, body: .stream(upload)).kind == .invalidURL)
        #expect(closed.wait())
    }

    // MARK: The end of a session

    @Test(arguments: ["is finished", "is released", "is released, and a child process is running"])
    func `a session that ends lets its transfers complete, and closes its connections`(reason: String) throws
    {
        let (closed, loop, witness) = (Answer<Bool>(), RunLoop.current, Shared<Witness?>(Witness()))
        let (server, fate) = (try TestServer.waiting(forEnd: closed), Fate(witness.value!))
        var session: HTTPSession? = HTTPSession()
        session?.start(HTTPRequest(server.url)) { [witness = witness.value] outcome in
            #expect(outcome.body == "hello")
            withExtendedLifetime(witness) { loop.stop() }
        }
        witness.value = nil
        if reason == "is finished" { session?.finishAndInvalidate() }
        loop.run { !fate.isFreed }
        let child = reason.hasSuffix("running") ? try Child("/bin/cat", [], input: .pipe) : nil
        if reason != "is finished" { session = nil }
        #expect(closed.wait())
        child?.closeInput()
        _ = child?.wait()
    }

    @Test func `transfers fail when their loop's thread ends`() throws {
        let (server, started) = (try TestServer.endless(), Answer<Bool>())
        let thread = try RunLoopThread(name: "network")
        let session = HTTPSession(on: thread.runLoop)
        let launch = session.launch(HTTPRequest(server.url), to: .pieces { _ in started.give(true) })
        #expect(started.wait())
        thread.stop()
        #expect(launch.wait().kind == .sessionEnded)
        #expect(session.run(server.url).kind == .sessionEnded)
    }

    @Test(arguments: ["file", "/dev/null"])
    func `a connection ends with its session, also after a download into a device`(path: String) throws {
        let (folder, closed) = (TemporaryFolder(), Answer<Bool>())
        let server = try TestServer.waiting(forEnd: closed)
        let path = path.hasPrefix("/") ? FilePath(path) : folder.path.appending(path)
        try onAThread {
            #expect(HTTPSession().run(HTTPRequest(server.url), to: .file(path)).kind == nil)
        }
        #expect(closed.wait())
    }

    @Test func `a slow consumer pauses its transfer`() throws {
        let (piece, received) = ([UInt8](repeating: 97, count: 65_536), Shared(0))
        let queue = DispatchQueue(label: "slow")
        queue.suspend()
        try withVirtualTime { time in
            let server = try PlayedServer()
            let launch = HTTPSession().launch(
                HTTPRequest(server.url), to: .pieces { bytes in received.update { $0 += bytes.count } },
                delivery: .queue(queue))
            let peer = try server.accept(time)
            peer.send("HTTP/1.1 200 OK\r\n\r\n")
            var sent = 0
            while sent < 32 << 20, peer.send(piece, flags: CInt(MSG_DONTWAIT)) {
                sent += piece.count
                time.advance(by: .zero)
            }
            #expect(sent > 0 && sent < 16 << 20)
            queue.resume()
            peer.close()
            #expect(launch.wait().kind == nil)
            #expect(received.value >= sent)
        }
    }
}
