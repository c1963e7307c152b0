import SystemPackage

/// The loop's side of a hand-off: fills chunks from the stream, and calls the client's closures. Belongs to
/// the loop's thread.
final class ChunkReader {
    private let stream: InputStream
    private let worker: ChunkWorker
    private let progress: ((HandoffProgress) -> Void)?
    private let completion: (HandoffFlow.Conclusion) -> Void
    /// Keeps the modes from being empty, and delivers the worker's updates. Nil once the hand-off has ended.
    private var source: RunLoop.Source?
    /// Checks a subclass in each pass, because it may end without an event. The engine reports what happens to
    /// other streams.
    private var observer: RunLoop.Observer?
    /// Which side reads the stream. The worker finds the end and the errors of what it reads itself.
    private enum Reading { case none, byLoop, byWorker }
    private var reading = Reading.none
    /// Whether this hand-off owns the stream. False if another one does.
    private var isOwner = false
    /// Whether the stream has reported bytes that have not been read yet.
    private var isReadable = false

    init(
        _ stream: InputStream, _ worker: ChunkWorker, progress: ((HandoffProgress) -> Void)?,
        completion: @escaping (HandoffFlow.Conclusion) -> Void
    ) {
        self.stream = stream
        self.worker = worker
        self.progress = progress
        self.completion = completion
    }

    func start(on loop: RunLoop, _ modes: [RunLoop.Mode]) {
        let receive = LoopOwned({ self.receive() }, on: loop)
        let end = LoopOwned({ _ = self.end() }, on: loop)
        // Cancelled by the end of the loop's thread, or by `end()`.
        let source = RunLoop.Source(
            named: { [worker] in worker.flow.withLock { $0.title } }, cancelled: { _, _ in end.value() },
            perform: { receive.value() })
        self.source = source
        for mode in modes { loop.add(source, forMode: mode) }
        let announce = Callback {
            source.signal()
            loop.wakeUp()
        }
        begin(on: loop, modes, announce)
        announce()  // a cancelled hand-off may have ended before it was connected
    }

    private func begin(on loop: RunLoop, _ modes: [RunLoop.Mode], _ announce: Callback) {
        worker.flow.withLock { $0.connect(announce) }
        let check = posting(on: loop, modes) { self.checkStream() }
        isOwner = stream.engine.handOver(to: HandoffBinding(loop, streamChanged: check))
        guard isOwner else { return worker.end(stream.engine.failure(.resourceBusy)) }
        stream.open()
        do throws(Errno) { try DispatchWorkers.prepare() } catch {
            return worker.fail(stream.engine.failure(error))
        }
        if let file = FileSource(stream) {
            reading = .byWorker
            worker.start(reading: file)
        } else {
            reading = .byLoop
            let resume = posting(on: loop, modes) { self.resume() }
            worker.flow.withLock { $0.start(resume: resume) }
            if isSubclass { observeStream(on: loop, modes) }
            schedule(on: loop, modes)
        }
        check()  // the stream may have ended before
    }

    private func observeStream(on loop: RunLoop, _ modes: [RunLoop.Mode]) {
        let observer = RunLoop.Observer(for: .beforeTimers) { [weak self] _, _ in self?.checkStream() }
        self.observer = observer
        for mode in modes { loop.add(observer, forMode: mode) }
    }

    /// A callback for any thread, which has the loop call `body`. Posts a block instead of signalling the
    /// source, because a progress closure may run the loop itself.
    private func posting(
        on loop: RunLoop, _ modes: [RunLoop.Mode], _ body: @escaping () -> Void
    ) -> Callback {
        let body = LoopOwned(body, on: loop)
        let block = PostedBlock(modes: ModeSet(modes), isSource: false) { body.value() }
        return Callback { loop.inbox.post(block) }
    }

    private func schedule(on loop: RunLoop, _ modes: [RunLoop.Mode]) {
        _ = worker.flow.withLock { $0.beginReading() }
        stream.delegate = self
        for mode in modes { stream.schedule(in: loop, forMode: mode) }
    }

    /// Receives the worker's latest update.
    private func receive() {
        let update = worker.flow.withLock { $0.takeUpdate() }
        defer { worker.flow.withLock { $0.endUpdate() } }
        if let latest = update.progress, source != nil { progress?(latest) }
        if let conclusion = update.conclusion, end() { completion(conclusion) }
    }

    /// Releases the stream, the loop and the worker. Returns false if that has been done.
    private func end() -> Bool {
        guard let source else { return false }
        self.source = nil
        worker.cancel()
        let callbacks = worker.flow.withLock { $0.disconnect() }
        withExtendedLifetime(callbacks) {}  // released with nothing locked
        observer?.invalidate()
        observer = nil
        if isOwner {
            stream.engine.endHandoff()
            stream.delegate = nil
            stream.close()
        }
        source.invalidate()
        return true
    }

    // MARK: Reading

    private func resume() {
        if source != nil, worker.flow.withLock({ $0.beginReading() }) { fill() }
    }

    /// Reads the bytes that the stream has reported, if there is a chunk to read them into.
    private func fill() {
        guard isReadable else { return }
        worker.fill { bytes in
            isReadable = false
            return stream.read(into: &bytes)
        } failure: {
            stream.streamError ?? stream.engine.failure(.badFileDescriptor)
        }
    }

    /// Ends the hand-off of a stream that other code has taken or closed, or that has ended without an event.
    private func checkStream() {
        guard source != nil, reading != .none else { return }
        switch stream.streamStatus {
        case .closed: worker.end(stream.engine.failure(.badFileDescriptor))
        case _ where reading == .byWorker: break
        case .error: worker.end(stream.streamError ?? stream.engine.failure(.ioError))
        case .atEnd: worker.end()
        default: if hasLostStream { worker.end(stream.engine.failure(.badFileDescriptor)) }
        }
    }

    /// Whether other code has removed the stream from its loop, or has set another delegate. A subclass may
    /// schedule itself, and call its delegate, in its own way.
    private var hasLostStream: Bool { !isSubclass && !stream.engine.delivers(to: self) }

    private var isSubclass: Bool { type(of: stream) != InputStream.self }
}

extension ChunkReader: StreamDelegate {
    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasBytesAvailable:
            isReadable = true
            fill()
        case .endEncountered: worker.end()
        case .errorOccurred: worker.end(stream.streamError ?? stream.engine.failure(.ioError))
        default: break
        }
    }
}
