import Reactor
import SystemPackage
import Testing

@Suite struct BoundPairFaultTests {
    @Test func `bytes that were written before a pair fails are delivered before its error`() async throws {
        try await onItsOwnThread {
            let buffer = BoundBuffer(capacity: 100)
            let (input, output) = (InputStream(reading: buffer), OutputStream(writing: buffer))
            for stream in [input, output] { stream.open() }
            #expect(output.write([1, 2]) == 2)
            buffer.fail(Errno.ioError)
            let recorder = Recorder()
            var bytes: [UInt8] = []
            recorder.onEvent = { _, event in
                if event == .hasBytesAvailable { bytes += input.read(upTo: 10) }
            }
            input.start(recorder)
            RunLoop.current.serve { recorder.count(.errorOccurred) > 0 }
            #expect(bytes == [1, 2])
            for stream in [input, output] { stream.close() }
        }
    }
}
