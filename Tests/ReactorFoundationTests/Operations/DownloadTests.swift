import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct DownloadTests {
    private func withServer(_ body: @escaping @Sendable (FileServer) throws -> Void) async throws {
        try await onItsOwnThread {
            let server = try FileServer()
            defer { server.stop() }
            try body(server)
        }
    }

    @Test func `a download on the shared thread receives its body and reports progress`()
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

    @Test func `concurrent downloads receive their own bodies`() async throws {
        try await withServer { server in
            let downloads = (0..<20).map { Downloader(port: server.port, path: "/\($0 * 10_000)") }
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = 3
            queue.addOperations(downloads, waitUntilFinished: true)
            #expect(downloads.map(\.body.count) == (0..<20).map { $0 * 10_000 })
        }
    }

    @Test func `cancelling the progress cancels a download`() async throws {
        try await withServer { server in
            let download = Downloader(port: server.port, path: "/endless") { download in
                if download.body.count > 100_000 { download.progress.cancel() }
            }
            let queue = OperationQueue()
            queue.addOperations([download], waitUntilFinished: true)
            #expect(download.isCancelled && download.body.count > 100_000)
            guard case .failure(let error) = download.result else { fatalError("The download did not fail.") }
            #expect(error is CancellationError)
        }
    }

    @Test func `a refused download fails with the stream's error`() throws {
        let notListening = try SocketPeer.bound()
        let address = try notListening.localAddress
        let download = Downloader(port: address.port ?? 0, path: "/")
        OperationQueue().addOperations([download], waitUntilFinished: true)
        guard case .failure(let error) = download.result else { fatalError("The download did not fail.") }
        #expect((error as? IOError)?.errno == .connectionRefused)
    }
}
