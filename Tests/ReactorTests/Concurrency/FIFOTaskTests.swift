import Reactor
import Testing

@Suite struct FIFOTaskTests {
    @Test func `a task waits for the first writer of a FIFO`() async throws {
        let folder = TemporaryFolder()
        let input = InputStream(path: folder.fifo())
        let error = await #expect(throws: IOError.self) {
            _ = try await input.readChunk(timeout: .milliseconds(20))
        }
        #expect(error?.errno == .timedOut)
        input.close()
    }
}
