import ExampleSupport
import ReactorFoundation
import ReactorHTTP
import ReactorHTTPFoundation
import SystemPackage

/// The program's work. The main loop drives all transfers, the display and the signals; the checksums are computed on the
/// threads of an operation queue.
@MainActor
final class Downloader {
    /// How often the bars change: often enough to look continuous.
    private static let frame = Duration.milliseconds(100)

    private let command: DownloaderCommand
    private let transfers = OperationQueue()
    private let checksums = OperationQueue()
    private let session: HTTPSession
    private let console = Console()
    private let downloads: [Download]
    private var interruption: Interruption?
    private var ended = 0
    private var hasFailed = false

    init(_ command: DownloaderCommand) throws {
        self.command = command
        try Self.makeFolder(FilePath(command.output))
        var configuration = HTTPSession.Configuration()
        configuration.maxConnectionsPerHost = nil  // the queue limits them
        configuration.retries = command.retries
        let session = HTTPSession(configuration, on: .main)
        self.session = session
        var names = FileName()
        let folder = command.output == "." ? FilePath() : FilePath(command.output)
        downloads = command.urls.map { url in
            Download(url, to: folder.appending(names.next(for: url)), command, in: session)
        }
        transfers.maxConcurrentOperationCount = command.maxConcurrent
    }

    /// Makes the folder and those above it.
    private static func makeFolder(_ path: FilePath) throws {
        var folder = FilePath(root: path.root, [])
        for component in path.components {
            folder.append(component)
            guard unsafe mkdir(folder.string, 0o777) != 0, errno != EEXIST else { continue }
            throw IOError(operation: "open", subject: folder.string, reason: .system(Errno(rawValue: errno)))
        }
    }

    /// Downloads all files, and returns the exit status.
    func run() throws -> Int32 {
        let interruption = try Interruption { [self] in cancel() }
        self.interruption = interruption
        for download in downloads { start(download) }
        let timer = console.isTerminal ? makeTimer() : nil
        RunLoop.main.run(in: .default)
        timer?.invalidate()
        console.showBars([])
        if interruption.signal != nil {
            let hint =
                downloads.contains(where: \.canBeResumed) ? "; --resume goes on with what is there" : ""
            console.printError("interrupted\(hint)")
        }
        interruption.stop()  // the last write may block: a signal then kills the process
        if let fault = console.finish() {
            console.printError("standard output: \(fault)")
            hasFailed = true
        }
        return interruption.signal.map { 128 + $0.rawValue } ?? (hasFailed ? 1 : 0)
    }

    private func start(_ download: Download) {
        let end = BlockOperation { MainActor.assumeIsolated { self.downloadHasEnded(download) } }
        end.addDependency(download.transfer)
        transfers.addOperation(download.transfer)
        if let checksum = download.checksum {
            end.addDependency(checksum)
            checksums.addOperation(checksum)
        }
        OperationQueue.main.addOperation(end)
    }

    private func cancel() {
        transfers.cancelAllOperations()
        checksums.cancelAllOperations()
    }

    private func downloadHasEnded(_ download: Download) {
        download.end()
        ended += 1
        if let error = download.error {
            hasFailed = true
            if !download.isCancelled { console.printError("\(error)") }
        }
        if command.json {
            console.printLine(download.json.description)
        } else if download.error == nil {
            console.printLine(download.line)
        }
        if ended == downloads.count { RunLoop.main.stop() }
    }

    // MARK: The bars

    private func makeTimer() -> Timer {
        Timer.scheduled(every: Self.frame, forMode: .common) { [unowned self] _ in
            MainActor.assumeIsolated { console.showBars(makeBars()) }
        }
    }

    /// One for each download that is running, and one for all.
    private func makeBars() -> [Bar] {
        let running = downloads.filter(\.isRunning)
        for download in running { download.measureRate() }
        return running.map { download in
            // A checksum has no rate.
            let rate = download.transfer.isExecuting ? download.rate.value : nil
            return Bar(download.name, download.fraction, download.bytes, rate)
        } + [total(running)]
    }

    private func total(_ running: [Download]) -> Bar {
        let bytes = downloads.reduce(0) { $0 + $1.bytes }
        let fraction = running.reduce(Double(ended)) { $0 + ($1.fraction ?? 0) } / Double(downloads.count)
        let rate = running.reduce(0) { $0 + ($1.transfer.isExecuting ? $1.rate.value : 0) }
        return Bar("\(ended) of \(downloads.count)", fraction, bytes, rate)
    }
}
