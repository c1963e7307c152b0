import Reactor
import Testing

@Suite struct LineEdgeTests {
    @Test func `a line that begins with the rest of a character is not known to be UTF-8`() throws {
        var framer = LineFramer()
        framer.checksUTF8 = true
        let line = Array("text of one line\n".utf8)
        let bytes = [0x80] + [[UInt8]](repeating: line, count: 100).flatMap(\.self)
        var known: [Bool] = []
        try framer.push(bytes.span.bytes) { _, line in
            known.append(line.isKnownUTF8)
            return .more
        }
        #expect(known == [false] + [Bool](repeating: true, count: 99))
    }
}
