import Glibc
import Reactor

/// Writes a body to a file beside its final name, which it gets when it is whole.
///
/// The partial file is kept if it can be resumed: if it is wanted, and the server has named the version that it is a part
/// of.
final class FileSink: BodySink {
    /// As much as one callback of the loop receives, so that the disk's thread is not woken more often. Measured: a tenth
    /// less CPU than with 256 KiB.
    private static let writeBehindLimit = 1 << 20
    /// libcurl delivers 16 KiB at a time, for each of which the disk's thread would be woken.
    private static let batchSize = 1 << 18

    var owner: RunningTransfer?
    private let path: FilePath
    private let part: String
    private let resumes: Bool
    private let runLoop: RunLoop
    private let modes: [RunLoop.Mode]
    private var stream: StreamSink?
    /// Whether this download has opened the partial file, and so replaced what an earlier one has kept.
    private var hasPart = false
    private var resumption: Resumption
    /// Whether the server has said that the partial file is all there is.
    private var isComplete = false
    /// How many bytes of the partial file's rest have yet to come, negative if there were more; nil if the response is not
    /// that rest.
    private var missingCount: Int?

    init(_ path: FilePath, resumes: Bool, on runLoop: RunLoop, _ modes: [RunLoop.Mode]) {
        self.path = path
        self.resumes = resumes
        (self.runLoop, self.modes) = (runLoop, modes)
        part = path.string + ".part"
        resumption = Resumption(validator: resumes ? Self.text(of: part + ".validator") : nil)
    }

    private var validatorPath: String { part + ".validator" }

    var decodes: Bool { false }
    var hasRoom: Bool { stream?.hasRoom ?? true }
    var failure: HTTPError.Kind? { hasTooMany ? .invalidResponse : stream?.failure }
    var isWhole: Bool { missingCount ?? 0 == 0 }
    private var hasTooMany: Bool { missingCount.map { $0 < 0 } ?? false }

    // MARK: An attempt

    func prepare(_ request: inout HTTPRequest) {
        resumption.prepare(&request) { Self.size(of: part) }
    }

    func begin(_ response: HTTPResponse) -> SinkAnswer {
        (isComplete, missingCount) = (false, nil)
        switch resumption.meaning(of: response) {
        case .rest(let total):
            missingCount = total - resumption.offset
            return open(expecting: total)
        case .nothing:
            isComplete = true
            return .ignores(offset: resumption.offset)
        case .useless:
            resumption.forget()
            return .restarts
        case .other:
            guard response.isSuccess else { return .refuses(.status(response.status)) }
            resumption.begin(with: response)
            let answer = open(expecting: response.contentLength)
            if hasPart { keepValidator() }
            return answer
        }
    }

    private func open(expecting total: Int?) -> SinkAnswer {
        let stream = StreamSink(
            OutputStream(
                path: FilePath(part), append: resumption.offset > 0, writeBehindLimit: Self.writeBehindLimit),
            on: runLoop, modes, path: part, batchSize: Self.batchSize)
        stream.open()
        if stream.failure == nil { hasPart = true }
        stream.owner = owner
        stream.ended = { [weak self] in self?.streamHasEnded($0) }
        self.stream = stream
        return stream.failure.map(SinkAnswer.refuses) ?? .accepts(expected: total, offset: resumption.offset)
    }

    /// Writes the validator beside the partial file, which is empty still: at no moment may the validator of another version
    /// be beside new bytes, even if the process is killed.
    private func keepValidator() {
        remove(validatorPath)
        guard resumes, let validator = resumption.validator else { return }
        do throws(Errno) { try Self.write(validator, to: validatorPath) } catch {
            resumption.forget()
            remove(validatorPath)
        }
    }

    func receive(_ bytes: RawSpan) {
        missingCount = missingCount.map { $0 - bytes.byteCount }
        // What an inconsistent server has sent is not kept.
        if hasTooMany { return resumption.forget() }
        stream?.receive(bytes)
    }

    func writeOut() { stream?.writeOut() }

    func restart() -> Bool {
        stream.take()?.abandon()
        return true
    }

    // MARK: The end

    func finish() -> SinkEnd {
        if let stream { return stream.finish() }
        return (isComplete ? rename() : .invalidResponse).map(SinkEnd.failed) ?? .finished([])
    }

    private func streamHasEnded(_ failure: HTTPError.Kind?) {
        owner?.sinkHasFinished(failure ?? rename())
    }

    private func rename() -> HTTPError.Kind? {
        do throws(Errno) {
            try Self.freeingOffLoop(path.string) { () throws(Errno) in
                try SystemCall.make { unsafe Glibc.rename(part, path.string) }
            }
        } catch {
            return .write(IOError(.write, path.string, error))
        }
        stream = nil
        if resumes { remove(validatorPath) }
        return nil
    }

    func abandon(_ error: HTTPError) {
        stream.take()?.abandon()
        guard hasPart, !resumes || resumption.validator == nil else { return }
        remove(part)
        if resumes { remove(validatorPath) }
    }
}

extension FileSink {
    private static func size(of path: String) -> Int {
        var information = stat()
        return unsafe stat(path, &information) == 0 ? Int(information.st_size) : 0
    }

    private static func text(of path: String) -> String? {
        guard let file = try? FileDescriptor.open(FilePath(path), .readOnly) else { return nil }
        defer { try? file.close() }
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: 1024) { buffer, count in
            count = unsafe (try? file.read(into: UnsafeMutableRawBufferPointer(buffer))) ?? 0
        }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }

    private static func write(_ text: String, to path: String) throws(Errno) {
        do {
            let file = try FileDescriptor.open(
                FilePath(path), .writeOnly, options: [.create, .truncate, .closeOnExec],
                permissions: [.ownerReadWrite, .groupRead, .otherRead])
            try file.closeAfter { _ = try file.writeAll(text.utf8) }
        } catch { throw error as? Errno ?? .ioError }
    }

    private func remove(_ path: String) { Self.freeingOffLoop(path) { _ = unsafe unlink(path) } }

    /// O_PATH, which Swift's Glibc module lacks: a descriptor that keeps the file, and never waits for a FIFO's other end.
    private static let pathOnly = CInt(0o10_000_000)

    /// Calls `body`, which removes the name of a file.
    ///
    /// To free what a large file occupies takes the kernel tens of milliseconds. It does that when the file is closed: on a
    /// worker, not on the loop.
    private static func freeingOffLoop<Failure: Error>(
        _ path: String, _ body: () throws(Failure) -> Void
    ) throws(Failure) {
        let file =
            size(of: path) < 16 << 20
            ? nil
            : try? FileDescriptor.open(
                FilePath(path), .readOnly,
                options: FileDescriptor.OpenOptions(rawValue: pathOnly | O_CLOEXEC | O_NOFOLLOW))
        defer { if let file { DispatchWorkers.run { try? file.close() } } }
        try body()
    }
}
