import Glibc
import Reactor

/// Writes a body to a file beside its final name, which it gets when it is whole; or into a FIFO or a device.
///
/// The partial file is kept if it can be resumed: if it is wanted, and the server has named the version that it is a part
/// of. It stays locked from the first attempt that needs it to the end of the transfer.
final class FileSink: BodySink {
    /// As much as one callback of the loop receives, so that the disk's thread is not woken more often. Measured: a tenth
    /// less CPU than with 256 KiB.
    private static let writeBehindLimit = 1 << 20
    /// libcurl delivers 16 KiB at a time, for each of which the disk's thread would be woken.
    private static let batchSize = 1 << 18

    /// The stream retains it too.
    var owner: RunningTransfer? { didSet { stream?.owner = owner } }
    private let path: FilePath
    /// Whether a partial file gets the path when it is whole.
    private let usesPartFile: Bool
    private let resumes: Bool
    private let runLoop: RunLoop
    private let modes: [RunLoop.Mode]
    private var stream: StreamSink?
    private var part: PartFile?
    /// Whether this download has written the partial file, and so replaced what an earlier one has kept.
    private var hasPart = false
    private var hasPrepared = false
    /// Why the file cannot be written.
    private var fault: HTTPError.Kind?
    private var resumption = Resumption(validator: nil)
    /// Whether the server has said that the partial file is all there is.
    private var isComplete = false
    /// How many bytes of the partial file's rest have yet to come, negative if there were more; nil if the response is not
    /// that rest.
    private var missingCount: Int?

    init(_ path: FilePath, resumes: Bool, on runLoop: RunLoop, _ modes: [RunLoop.Mode]) {
        (self.runLoop, self.modes) = (runLoop, modes)
        do throws(Errno) {
            let target = try DownloadTarget(path)
            (self.path, usesPartFile) = (target.path, target.usesPartFile)
        } catch {
            (self.path, usesPartFile) = (path, false)
            fault = .write(IOError(.open, path.string, error))
        }
        self.resumes = resumes && usesPartFile
    }

    private var partPath: FilePath { path.appending(suffix: ".part") }
    private var writtenPath: FilePath { usesPartFile ? partPath : path }

    var decodes: Bool { false }
    var hasRoom: Bool { stream?.hasRoom ?? true }
    var failure: HTTPError.Kind? { hasTooMany ? .invalidResponse : fault ?? stream?.failure }
    var isWhole: Bool { missingCount ?? 0 == 0 }
    private var hasTooMany: Bool { missingCount.map { $0 < 0 } ?? false }

    // MARK: An attempt

    func prepare(_ request: inout HTTPRequest, hasBody: Bool) {
        if !hasPrepared { findPart() }
        hasPrepared = true
        resumption.prepare(&request, hasBody: hasBody) { part?.size ?? 0 }
    }

    /// Locks what an earlier download has left before its size and its validator are read.
    private func findPart() {
        guard resumes else { return }
        do throws(Errno) {
            part = try PartFile.open(partPath, creates: false)
            resumption = Resumption(validator: part?.validator)
        } catch {
            fault = .write(IOError(.open, partPath.string, error))
        }
    }

    func begin(_ response: HTTPTransfer.Response) -> SinkAnswer {
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
            guard response.status.kind == .successful else { return .refuses(.status(response.status)) }
            resumption.begin(with: response)
            let answer = open(expecting: response.contentLength)
            if hasPart { keepValidator() }
            return answer
        }
    }

    private func open(expecting total: Int?) -> SinkAnswer {
        let output: OutputStream
        do throws(Errno) { output = try makeOutput() } catch {
            return .refuses(.write(IOError(.open, writtenPath.string, error)))
        }
        let stream = StreamSink(
            output, on: runLoop, modes, path: writtenPath.string, batchSize: Self.batchSize)
        stream.open()
        stream.owner = owner
        stream.ended = { [weak self] in self?.streamHasEnded($0) }
        self.stream = stream
        return stream.failure.map(SinkAnswer.refuses) ?? .accepts(expected: total, offset: resumption.offset)
    }

    private func makeOutput() throws(Errno) -> OutputStream {
        guard usesPartFile else {
            return OutputStream(
                path: path, append: false, writeBehindLimit: Self.writeBehindLimit)
        }
        if part == nil { part = try PartFile.open(partPath, creates: true) }
        guard let part else { throw .noSuchFileOrDirectory }
        let output = try part.output(from: resumption.offset, writeBehindLimit: Self.writeBehindLimit)
        hasPart = true
        return output
    }

    /// Called while the partial file is empty: a stale validator must never accompany new bytes, even if the process crashes.
    private func keepValidator() {
        part?.removeValidator()
        guard resumes, let validator = resumption.validator else { return }
        do throws(Errno) { try part?.writeValidator(validator) } catch {
            resumption.forget()
            part?.removeValidator()
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
        // What a FIFO or a device has received cannot be taken back.
        guard usesPartFile || stream == nil else { return false }
        stream.take()?.abandon()
        return true
    }

    // MARK: The end

    func finish() -> SinkEnd {
        if let stream { return stream.finish() }
        return (isComplete ? rename() : .invalidResponse).map(SinkEnd.failed) ?? .finished([])
    }

    private func streamHasEnded(_ failure: HTTPError.Kind?) {
        owner?.sinkHasFinished(failure ?? (usesPartFile ? rename() : nil))
    }

    private func rename() -> HTTPError.Kind? {
        do throws(Errno) { try part?.rename(to: path) } catch {
            return .write(IOError(.write, (error == .resourceBusy ? partPath : path).string, error))
        }
        stream = nil
        if resumes { part?.removeValidator() }
        part = nil
        return nil
    }

    /// Unlocks the part before the next command.
    var canAbandonInsideLibcurl: Bool { true }

    func abandon(_ error: HTTPError) {
        stream.take()?.abandon()
        defer { part = nil }
        guard hasPart, !resumes || resumption.validator == nil else { return }
        try? part?.remove()
        if resumes { part?.removeValidator() }
    }
}
