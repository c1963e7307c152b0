import Reactor
import ReactorHTTP
import ReactorTestSupport
import SystemPackage

/// A folder for downloads to the file `file`.
struct DownloadFolder {
    let folder = TemporaryFolder()
    var path: FilePath { folder.path.appending("file") }
    var part: FilePath { folder.path.appending("file.part") }
    var names: [String] { folder.names.sorted() }
    /// What each file has, by its name.
    var files: [String: String?] {
        Dictionary(uniqueKeysWithValues: folder.names.map { ($0, Self.text(of: folder.path.appending($0))) })
    }
    /// What the file has; nil if there is none.
    var saved: String? { Self.text(of: path) }
    var savedPart: String? { Self.text(of: part) }

    static func text(of path: FilePath) -> String? {
        content(of: path.string).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Leaves what an earlier download leaves that was cut after "hello".
    func leavePart(validator: String = "\"1\"") throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file(validator.utf8, name: "file.part.validator")
    }

    func run(
        _ request: HTTPRequest, body: HTTPSource? = nil, to path: FilePath? = nil, resumes: Bool = false,
        retries: Int = 0, progress: (@Sendable (HTTPTransfer.Progress) -> Void)? = nil
    ) -> Outcome {
        let session = HTTPSession { ($0.retries, $0.retryDelay) = (retries, .milliseconds(1)) }
        let file = HTTPDestination.file(path ?? self.path, resumes: resumes)
        return session.run(request, body: body, to: file, progress: progress)
    }

    func run(
        _ server: TestServer, to path: FilePath? = nil, resumes: Bool = false, retries: Int = 0
    ) -> Outcome {
        run(HTTPRequest(server.url), to: path, resumes: resumes, retries: retries)
    }

    /// Downloads "hello world", and calls `body` after the first five bytes have been received.
    func run(resumes: Bool, meanwhile body: () throws -> Void) throws -> Outcome {
        let (gate, received) = (Answer<Bool>(), Answer<Bool>())
        let server = try TestServer.halting(until: gate, "hello", " world", fields: "ETag: \"2\"\r\n")
        return try withNetwork { session in
            let launch = session.launch(
                HTTPRequest(server.url), to: .file(path, resumes: resumes),
                progress: { if $0.bytesReceived == 5 { received.give(true) } })
            _ = received.wait()
            defer { gate.give(true) }
            try body()
            gate.give(true)
            return launch.wait()
        }
    }
}
