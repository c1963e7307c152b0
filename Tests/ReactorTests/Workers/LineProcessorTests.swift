import Testing

@testable import Reactor

@Suite struct LineProcessorTests {
    @Test func `what is left of a line counts only once it has been delivered`() throws {
        var processor = LineProcessor(
            framer: LineFramer(), receiver: LineReceiver(0) { lines, _, _ in lines += 1 }, isCancelled: Flag()
        )
        try processor.process(Array("one\ntw".utf8).span.bytes)
        #expect(processor.output.byteCount == 4 && processor.output.value == 1)
        try processor.process(Array("o\nthree".utf8).span.bytes)
        #expect(processor.output.byteCount == 8)
        try processor.finish()
        #expect(processor.output.byteCount == 13 && processor.output.value == 3)
    }

    @Test(arguments: 1...20)
    func `a piece that is no text ends the reading before it, however the bytes have come`(size: Int) {
        var processor = LineProcessor(
            framer: LineFramer(limit: 5, overflow: .split),
            receiver: LineReceiver(0, .report) { pieces, _, _ in pieces += 1 }, isCancelled: Flag())
        let bytes = Array("abcdefg".utf8) + [0xff] + Array("hijklmnopqrs\n".utf8)
        #expect(throws: InvalidText.self) {
            for start in stride(from: 0, to: bytes.count, by: size) {
                try processor.process(bytes.span.bytes.extracting(start..<min(start + size, bytes.count)))
            }
        }
        #expect(processor.output.byteCount == 5 && processor.output.value == 1)
    }
}
