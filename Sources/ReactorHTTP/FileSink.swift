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
    /// Whether there is a partial file, which this download or an earlier one has made.
    private var hasPart = false
    /// What the server calls the version that the partial file is a part of.
    private var validator: String?
    /// Where the attempt under way goes on; 0 if it begins anew.
    private var offset = 0
    /// Whether a part of the response's body can be asked for.
    private var isResumable = true
    /// Whether the server has said that the partial file is all there is.
    private var isComplete = false

    init(_ path: FilePath, resumes: Bool, on runLoop: RunLoop, _ modes: [RunLoop.Mode]) {
        self.path = path
        self.resumes = resumes
        (self.runLoop, self.modes) = (runLoop, modes)
        part = path.string + ".part"
        if resumes { validator = Self.text(of: validatorPath) }
        hasPart = validator != nil
    }

    private var validatorPath: String { part + ".validator" }

    var decodes: Bool { false }
    var hasRoom: Bool { stream?.hasRoom ?? true }
    var failure: HTTPError.Kind? { stream?.failure }

    // MARK: An attempt

    func prepare(_ request: inout HTTPRequest) {
        // Ranges are defined for GET, and a request that may be sent twice. The client's own range is another resource.
        isResumable = request.method == "GET" && request.body == nil && request.fields["Range"] == nil
        if !isResumable { validator = nil }
        offset = validator == nil ? 0 : Self.size(of: part)
        guard offset > 0, let validator else { return }
        request.fields["Range"] = "bytes=\(offset)-"
        request.fields["If-Range"] = validator
    }

    func begin(_ response: HTTPResponse) -> SinkAnswer {
        let isPartial = offset > 0 && response.status == 206
        isComplete = response.status == 416 && completes(response)
        if isComplete { return .ignores(offset: offset) }
        if offset > 0, response.status == 416 || isPartial && !continues(response) {
            validator = nil
            return .restarts
        }
        guard response.isSuccess else { return .refuses(.status(response.status)) }
        if !isPartial { offset = 0 }
        let stream = StreamSink(
            OutputStream(path: FilePath(part), append: isPartial, writeBehindLimit: Self.writeBehindLimit),
            on: runLoop, modes, path: part,
            batchSize: Self.batchSize)
        hasPart = true
        stream.open()
        stream.owner = owner
        stream.ended = { [weak self] in self?.streamHasEnded($0) }
        self.stream = stream
        if !isPartial { note(isResumable ? Validator.of(response) : nil) }
        if let failure = stream.failure { return .refuses(failure) }
        let total = isPartial ? totalLength(response) : response.contentLength
        return .accepts(expected: total, offset: offset)
    }

    /// Whether a partial response is the whole rest of the file, of the same version.
    private func continues(_ response: HTTPResponse) -> Bool {
        totalLength(response) != nil && isSameVersion(response)
    }

    /// The length of a file whose rest a partial response is; nil if it is another part, or the length is not known
    /// (RFC 9110, 14.4).
    private func totalLength(_ response: HTTPResponse) -> Int? {
        guard let range = response.fields["Content-Range"], range.hasPrefix("bytes \(offset)-") else {
            return nil
        }
        let numbers = range.dropFirst("bytes \(offset)-".count).split(separator: "/", maxSplits: 1)
        guard numbers.count == 2, let last = Int(numbers[0]), let total = Int(numbers[1]) else { return nil }
        return last >= offset && last == total - 1 ? total : nil
    }

    /// Whether the server has nothing after the end of the file, because the file is whole.
    private func completes(_ response: HTTPResponse) -> Bool {
        offset > 0 && response.fields["Content-Range"] == "bytes */\(offset)" && isSameVersion(response)
    }

    private func isSameVersion(_ response: HTTPResponse) -> Bool {
        let isTag = validator?.hasPrefix("\"") == true
        guard let version = response.fields[isTag ? "ETag" : "Last-Modified"] else { return true }
        return version == validator
    }

    /// Keeps the validator with the partial file.
    private func note(_ validator: String?) {
        self.validator = validator
        guard resumes else { return }
        guard let validator else { return remove(validatorPath) }
        do throws(Errno) { try Self.write(validator, to: validatorPath) } catch { self.validator = nil }
    }

    func receive(_ bytes: RawSpan) { stream?.receive(bytes) }

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
            try SystemCall.make { unsafe Glibc.rename(part, path.string) }
        } catch {
            return .write(IOError(.write, path.string, error))
        }
        stream = nil
        if resumes { remove(validatorPath) }
        return nil
    }

    func abandon(_ error: HTTPError) {
        stream.take()?.abandon()
        guard !resumes || validator == nil else { return }
        if hasPart { remove(part) }
        if resumes { remove(validatorPath) }
    }
}

/// What identifies a version of a resource, for `If-Range` (RFC 9110, 13.1.5).
private enum Validator {
    static func of(_ response: HTTPResponse) -> String? {
        if let tag = response.fields["ETag"] { return tag.hasPrefix("\"") ? tag : nil }
        // In the second in which a resource was modified, it may be modified again.
        let date = response.fields["Last-Modified"]
        return date == response.fields["Date"] ? nil : date
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

    private func remove(_ path: String) { _ = unsafe unlink(path) }
}
