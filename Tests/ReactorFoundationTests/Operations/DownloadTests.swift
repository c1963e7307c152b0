import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

@Suite struct DownloadTests {
    private func withServer(_ body: @escaping @Sendable (FileServer) throws -> Void) async throws {
        try await onItsOwnThread {
            let server = try FileServer()
            defer { server.stop() }
            try body(server)
        }
    }

    @Test func `a stream's delegate on the resident loop collects the answer, and tells of its progress`()
        async throws
    {
        try await withServer { server in
            let counts = Trace()
            let download = Downloader(port: server.port, path: "/300000") { download in
                counts("\(download.progress.completedUnitCount <= download.progress.totalUnitCount)")
            }
            let queue = OperationQueue()
            queue.addOperations([download], waitUntilFinished: true)
            #expect(download.body == Data(repeating: 7, count: 300_000))
            #expect(download.progress.totalUnitCount == 300_000 && download.progress.isFinished)
            #expect(!counts.all.isEmpty && !counts.all.contains("false"))
        }
    }

    @Test func `many downloads share the thread, no more at once than the queue allows`() async throws {
        try await withServer { server in
            let downloads = (0..<20).map { Downloader(port: server.port, path: "/\($0 * 10_000)") }
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = 3
            queue.addOperations(downloads, waitUntilFinished: true)
            #expect(downloads.map(\.body.count) == (0..<20).map { $0 * 10_000 })
        }
    }

    @Test func `a download is cancelled in the middle, by its progress`() async throws {
        try await withServer { server in
            let download = Downloader(port: server.port, path: "/endless") { download in
                if download.body.count > 100_000 { download.progress.cancel() }
            }
            let queue = OperationQueue()
            queue.addOperations([download], waitUntilFinished: true)
            #expect(download.isCancelled && download.body.count > 100_000)
            guard case .failure(let error) = download.result else { fatalError("it did not fail") }
            #expect(error is CancellationError)
        }
    }

    @Test func `a download that finds no server fails with the stream's error`() async throws {
        try await onItsOwnThread {
            let silent = try SocketPeer.bound()
            let address = try silent.localAddress
            let download = Downloader(port: address.port ?? 0, path: "/")
            OperationQueue().addOperations([download], waitUntilFinished: true)
            guard case .failure(let error) = download.result else { fatalError("it did not fail") }
            #expect(error as? Errno == .connectionRefused)
        }
    }
}
