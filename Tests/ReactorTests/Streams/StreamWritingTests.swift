import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct StreamWritingTests {
    private func memory() -> OutputStream {
        let output = OutputStream(toMemory: ())
        output.open()
        return output
    }

    @Test func `text is written as UTF-8`() {
        let output = memory()
        #expect(output.write("żółw 東京\n") == 15 && output.write("") == 0)
        #expect(output.writtenBytes == Array("żółw 東京\n".utf8))
    }

    @Test func `spans, arrays and any other bytes are written whole`() {
        let output = memory()
        let array: [UInt8] = [1, 2, 3]
        #expect(output.write(array.span.bytes) == 3)
        #expect(output.write([4, 5]) == 2)
        #expect(output.write(array.dropFirst()) == 2)
        #expect(output.write((6...9).lazy.map { UInt8($0) }) == 4)
        #expect(output.write("x".utf8) == 1)
        #expect(output.writtenBytes == [1, 2, 3, 4, 5, 2, 3, 6, 7, 8, 9, 0x78])
    }

    @Test func `a full stream accepts a part, and the count is of bytes`() {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 3) { buffer in
            let output = OutputStream(toBuffer: buffer.baseAddress!, capacity: 3)
            output.open()
            #expect(output.write("żó") == 3 && output.write("x") == 0)
        }
    }

    @Test func `a write that waits for room writes all bytes`() throws {
        let (input, output) = Stream.boundPair(bufferSize: 10)
        for stream in [input, output] { stream.open() }
        let text = String(repeating: "0123456789", count: 1000)
        let (writer, stream, count) = (try RunLoopThread(name: "writer"), Carrier(output), Shared(0))
        writer.runLoop.perform { count.value = stream.value.write(text) }
        var received: [UInt8] = []
        while received.count < text.utf8.count { received += input.read(upTo: 100) }
        writer.runLoop.performAndWait {}
        #expect(received == Array(text.utf8) && count.value == received.count)
    }

    @Test func `an event prints its names`() {
        #expect("\(Stream.Event.hasBytesAvailable)" == "hasBytesAvailable")
        #expect("\([.openCompleted, .endEncountered] as Stream.Event)" == "[openCompleted, endEncountered]")
        #expect("\([] as Stream.Event)" == "[]" && "\(Stream.Event(rawValue: 33))" == "[openCompleted, 0x20]")
    }
}
