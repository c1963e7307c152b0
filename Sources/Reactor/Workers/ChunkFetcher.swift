import SystemPackage

/// Reads a regular file on a Dispatch queue, into the chunks themselves: no loop, and no copy, in between.
final class ChunkFetcher<Processor: ChunkProcessor>: Sendable {
    private let engine: StreamEngine
    private let worker: ChunkWorker<Processor>

    /// Nil if the stream is not one of a regular file, or is a subclass's and so read by its own methods.
    init?(_ stream: InputStream, _ worker: ChunkWorker<Processor>) {
        guard type(of: stream) == InputStream.self, stream.engine.backend.isReadOffLoop else { return nil }
        engine = stream.engine
        self.worker = worker
        worker.expect(engine.backend.expectedByteCount)
    }

    func start() {
        if worker.pipe.beginReading() {
            DispatchWorkers.run { [self] in fetch() }
        }
    }

    private func fetch() {
        while let chunk = worker.pipe.takeFree(isPatient: true) {
            let count = unsafe chunk.fill { unsafe engine.read(into: $0) }
            guard count > 0 else {
                worker.pipe.putBack(chunk)
                // A stream that is not read, and has no error, has been closed by somebody else.
                return worker.end(count < 0 ? engine.error as? Errno ?? .badFileDescriptor : nil)
            }
            if let lineEnd = worker.lineEnd { chunk.survey(endingAt: lineEnd) }
            worker.put(chunk)
        }
    }
}
