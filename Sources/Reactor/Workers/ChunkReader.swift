import SystemPackage

/// The loop's side of a hand-off: fills chunks from the stream, and calls the client's closures. Belongs to
/// the loop's thread.
final class ChunkReader {
    private let stream: InputStream
    private let worker: ChunkWorker
    private let progress: ((HandoffProgress) -> Void)?
    private let completion: (HandoffFlow.Conclusion) -> Void
    /// Keeps the modes from being empty, and brings what the worker has to say. Nil when all is over.
    private var source: RunLoop.Source?
    /// Checks the stream before each pass: what ended before the hand-over, or was closed, delivers no event.
    private var watchman: RunLoop.Observer?
    /// Whether the worker reads the stream, and finds its end and its faults itself.
    private var isReadByWorker = false
    /// Whether this hand-off owns the stream. False if another one does.
    private var isOwner = false
    /// Whether the stream has told of bytes that have not been read yet.
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
        let hear = LoopOwned({ self.hear() }, on: loop)
        let end = LoopOwned({ _ = self.end() }, on: loop)
        // Taken out of a mode by the end of the loop's thread, or of this.
        let source = RunLoop.Source(
            cancelled: { _, _ in end.value() }, perform: { hear.value() })
        self.source = source
        for mode in modes { loop.add(source, forMode: mode) }
        let announce = Callback {
            source.signal()
            loop.wakeUp()
        }
        begin(on: loop, modes, announce)
        announce()  // a hand-off that was cancelled before may have ended when there was no link
    }

    private func begin(on loop: RunLoop, _ modes: [RunLoop.Mode], _ announce: Callback) {
        isOwner = stream.engine.handOver(to: loop)
        guard isOwner else {
            worker.connect(announce: announce, resumeReading: Callback {})
            return worker.end(Errno.resourceBusy)
        }
        stream.open()
        do throws(Errno) { try DispatchWorkers.prepare() } catch {
            worker.connect(announce: announce, resumeReading: Callback {})
            return worker.fail(error)
        }
        if let file = FileSource(stream) {
            isReadByWorker = true
            watch(on: loop, modes)
            worker.connect(announce: announce, reading: file)
        } else {
            worker.connect(announce: announce, resumeReading: resumption(on: loop, modes))
            watch(on: loop, modes)
            listen(on: loop, modes)
        }
    }

    private func watch(on loop: RunLoop, _ modes: [RunLoop.Mode]) {
        let watchman = RunLoop.Observer(for: .beforeTimers) { [weak self] _, _ in self?.checkStream() }
        self.watchman = watchman
        for mode in modes { loop.add(watchman, forMode: mode) }
    }

    /// Has this go on reading. A block rather than a signal: it runs inside a progress closure's own run of
    /// the loop too.
    private func resumption(on loop: RunLoop, _ modes: [RunLoop.Mode]) -> Callback {
        let resume = LoopOwned({ self.resume() }, on: loop)
        let block = PostedBlock(modes: ModeSet(modes), isSource: false) { resume.value() }
        return Callback { loop.inbox.post(block) }
    }

    private func listen(on loop: RunLoop, _ modes: [RunLoop.Mode]) {
        _ = worker.beginReading()
        stream.delegate = self
        for mode in modes { stream.schedule(in: loop, forMode: mode) }
    }

    /// Takes in what the worker has to say.
    private func hear() {
        let news = worker.takeNews()
        if let word = news.progress, source != nil { progress?(word) }
        if let conclusion = news.conclusion, end() { completion(conclusion) }
    }

    /// Lets go of the stream, the loop and the worker; false if that has been done.
    private func end() -> Bool {
        guard let source else { return false }
        self.source = nil
        worker.cancel()
        worker.disconnect()
        watchman?.invalidate()
        watchman = nil
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
        if source != nil, worker.beginReading() { fill() }
    }

    /// Reads what the stream has announced, if there is a chunk to read it into.
    private func fill() {
        guard isReadable else { return }
        unsafe worker.fill { memory in
            isReadable = false
            let bytes = unsafe memory.bindMemory(to: UInt8.self)
            return unsafe stream.read(bytes.baseAddress!, maxLength: bytes.count)
        } fault: {
            stream.streamError ?? Errno.badFileDescriptor
        }
    }

    private func checkStream() {
        switch stream.streamStatus {
        case .closed: worker.end(Errno.badFileDescriptor)
        case _ where isReadByWorker: break
        case .error: worker.end(stream.streamError ?? Errno.ioError)
        case .atEnd: worker.end()
        default: if isTakenAway { worker.end(Errno.badFileDescriptor) }
        }
    }

    /// Whether other code has removed the stream from its loop, or has set another delegate. A subclass may schedule
    /// itself, and call its delegate, in its own way.
    private var isTakenAway: Bool {
        type(of: stream) == InputStream.self && !stream.engine.delivers(to: self)
    }
}

extension ChunkReader: StreamDelegate {
    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasBytesAvailable:
            isReadable = true
            fill()
        case .endEncountered: worker.end()
        case .errorOccurred: worker.end(stream.streamError ?? Errno.ioError)
        default: break
        }
    }
}
