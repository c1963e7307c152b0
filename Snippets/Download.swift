import Glibc
import Reactor
import ReactorHTTP

// Downloads a file, shows progress, and continues where a run that was interrupted has ended.
guard let url = CommandLine.arguments.dropFirst().first, let name = url.split(separator: "/").last else {
    print("usage: Download URL")
    exit(2)
}
let session = HTTPSession(on: .main)

@Sendable func show(_ progress: HTTPTransfer.Progress) {
    print(progress.bytesReceived, progress.bytesExpected.map { "of \($0)" } ?? "")
}
let destination = HTTPDestination.file(FilePath(String(name)), resumes: true)
let transfer = session.start(HTTPRequest(url), to: destination, progress: show) { result in
    switch result {
    case .success(let response): print("saved \(name) from \(response.url)")
    case .failure(let error): print(error)
    }
    RunLoop.main.stop()
}
let interrupt = try SignalSource(.interrupt) { _, _ in transfer.cancel() }
try RunLoop.main.add(interrupt, forMode: .common)
_ = RunLoop.main.run(in: .default)
