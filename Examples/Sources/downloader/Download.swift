import ExampleSupport
import Glibc
import ReactorFoundation
import ReactorHTTP
import ReactorHTTPFoundation
import SystemPackage

/// One download: the operations that save a file and compute its checksum, and what became of them.
@MainActor
final class Download {
    let url: String
    let file: FilePath
    let transfer: HTTPOperation
    let checksum: Checksum?
    /// How fast it receives bytes now.
    private(set) var rate = Rate()
    /// The time from the start to the end; zero if it never started.
    private(set) var duration = Duration.zero

    init(_ url: String, to file: FilePath, _ command: DownloaderCommand, in session: HTTPSession) {
        (self.url, self.file) = (url, file)
        if !command.resume { Self.removePart(of: file.string + ".part") }
        // A signal leaves what a later run can resume, so partial files are always kept.
        transfer = HTTPOperation(HTTPRequest(url), to: .file(file, resumes: true), in: session)
        checksum = command.checksum ? Checksum(of: file, after: transfer) : nil
    }

    /// Removes what an earlier download has left, but not what another one is writing, which has locked it.
    private static func removePart(of path: String) {
        let part = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
        guard part >= 0 else { return }
        defer { close(part) }
        guard flock(part, LOCK_EX | LOCK_NB) == 0 else { return }
        for end in ["", ".validator"] { _ = unsafe unlink(path + end) }
    }

    /// Notes the time at which all is done.
    func end() { duration = transfer.transfer?.startDate.duration(to: .now) ?? .zero }

    var name: String { file.lastComponent?.string ?? "" }

    var isRunning: Bool { transfer.isExecuting || checksum?.isExecuting == true }

    /// How many bytes the file, or its part, has.
    var bytes: Int { transfer.transfer?.progress.bytesReceived ?? 0 }

    func measureRate() { rate.note(bytes, at: .now) }

    /// How much has been received, from 0 to 1; nil if the length is not known.
    var fraction: Double? {
        guard let progress = transfer.transfer?.progress, let expected = progress.bytesExpected else {
            return nil
        }
        return expected > 0 ? min(1, Double(progress.bytesReceived) / Double(expected)) : 1
    }

    // MARK: The end

    var sha256: String? { try? checksum?.result?.get() }

    /// Why the file is not there, or has no checksum.
    var error: (any Error)? {
        if case .failure(let error)? = transfer.result { return error }
        if case .failure(let error)? = checksum?.result { return error }
        return checksum != nil && checksum?.result == nil ? CancellationError() : nil
    }

    private var hasFailed: Bool {
        if case .failure? = transfer.result { return true }
        return false
    }

    var isCancelled: Bool { error is CancellationError || (error as? HTTPError)?.kind == .cancelled }

    private var status: Int? {
        if let response = transfer.response { return response.status.code }
        if let response = (error as? HTTPError)?.response { return response.status.code }
        return nil
    }

    /// The size of the part, which a full disk may have kept smaller than what was received.
    private var partSize: Int {
        var status = stat()
        return unsafe stat(file.string + ".part", &status) == 0 ? Int(status.st_size) : 0
    }

    /// Whether a later run with `--resume` needs only the rest.
    var canBeResumed: Bool { unsafe partSize > 0 && access(file.string + ".part.validator", R_OK) == 0 }

    var json: JSON {
        .object([
            ("url", .text(url)),
            ("file", .text(file.string)),
            ("bytes", .integer(hasFailed ? partSize : bytes)),
            ("seconds", .real(duration / .seconds(1))),
            ("status", status.map(JSON.integer) ?? .null),
            ("sha256", sha256.map(JSON.text) ?? .null),
            ("error", error.map { .text("\($0)") } ?? .null),
        ])
    }

    /// The line for people, or for `sha256sum --check`.
    var line: String {
        if let sha256 { return "\(sha256)  \(file)" }
        return "\(file): \(bytes.inUnits) in " + String(format: "%.2f s", duration / .seconds(1))
    }
}

/// How fast a number of bytes grows.
struct Rate {
    /// Long enough for a steady figure, short enough for a current one.
    private static let window = Duration.seconds(3)

    private var samples: [(date: Deadline, bytes: Int)] = []

    /// Notes how many bytes there are.
    ///
    /// The first ones do not count: a download that is resumed begins with those that it had. One that begins
    /// anew has fewer than before.
    mutating func note(_ bytes: Int, at date: Deadline) {
        if bytes < samples.last?.bytes ?? 0 { samples = [] }
        if bytes > 0 { samples.append((date, bytes)) }
        samples.removeAll { $0.date.duration(to: date) > Self.window }
    }

    /// Bytes in a second.
    var value: Int {
        guard let first = samples.first, let last = samples.last, first.date < last.date else { return 0 }
        return Int(Double(last.bytes - first.bytes) / (first.date.duration(to: last.date) / .seconds(1)))
    }
}

extension Int {
    /// A number of bytes, such as `12.3 MB`.
    var inUnits: String {
        var (value, unit) = (Double(self), "B")
        for larger in ["kB", "MB", "GB", "TB"] where value >= 1000 { (value, unit) = (value / 1000, larger) }
        return unit == "B" ? "\(self) B" : String(format: "%.1f ", value) + unit
    }
}
