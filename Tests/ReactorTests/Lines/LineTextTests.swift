#if DEBUG

import CReactorLinux
import ReactorTestSupport
import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct LineTextTests {
    private func text(_ bytes: [UInt8], _ policy: TextPolicy = .repair, at offset: Int = 0) throws -> String {
        let line = LineFramer.Line(number: 7, offset: offset, terminatorLength: 1, ending: .terminated)
        return try unsafe line.text(bytes.span.bytes, policy)
    }

    @Test func `invalid text is repaired, or reported with its offset in the stream`() throws {
        let bytes: [UInt8] = [97, 0xFF, 98, 0xE2, 0x82, 99, 0xF0, 0x9F, 0x8E]
        #expect(try text(bytes) == "a\u{FFFD}b\u{FFFD}c\u{FFFD}")
        #expect(throws: InvalidText(number: 7, offset: 103)) {
            try text([97, 0xC3, 0xA9, 0xE2, 0x82, 99], .fail, at: 100)
        }
        #expect(throws: InvalidText(number: 7, offset: 40)) {
            try text([UInt8](repeating: 97, count: 40) + [0xC3], .fail)
        }
    }

    @Test(
        arguments: [
            [0xC0, 0x80], [0xC1, 0xBF], [0xE0, 0x9F, 0xBF], [0xED, 0xA0, 0x80], [0xF0, 0x8F, 0xBF, 0xBF],
            [0xF4, 0x90, 0x80, 0x80], [0xF5, 0x80, 0x80, 0x80], [0x80], [0xC2], [0xE1, 0x80],
            [0xF1, 0x80, 0x80], [0xFE], [0xFF], [0xC2, 0x41], [0xC2, 0xC2, 0x80], [0xE1, 0x80, 0x41],
            [0xF1, 0x80, 0x80, 0x41], [0xC2, 0x80], [0xDF, 0xBF], [0xE0, 0xA0, 0x80], [0xED, 0x9F, 0xBF],
            [0xEE, 0x80, 0x80], [0xEF, 0xBF, 0xBF], [0xF0, 0x90, 0x80, 0x80], [0xF4, 0x8F, 0xBF, 0xBF],
        ] as [[UInt8]])
    func `the limits of well-formed sequences are known wherever they are`(sequence: [UInt8]) {
        let isValid = String(validating: sequence, as: UTF8.self) != nil
        for before in 0..<100 {
            for after in [0, 1, 2, 31, 64] {
                let (head, tail) = (
                    [UInt8](repeating: 120, count: before), [UInt8](repeating: 120, count: after)
                )
                let bytes = head + sequence + tail
                let isRight = unsafe bytes.span.bytes.isValidUTF8 == isValid
                if !isRight { Issue.record("\(before) bytes before, \(after) after") }
            }
        }
    }

    @Test func `validation of random bytes agrees with the standard library`() {
        var generator = SeededGenerator(seed: 1)
        let units: [[UInt8]] = ["a", "é", "日", "🎏"].map { Array($0.utf8) }
        for round in 0..<Depth.of(full: 20_000, quick: 2000) {
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 0...60, using: &generator) {
                bytes += units.randomElement(using: &generator)!
            }
            if round % 2 == 0, let index = bytes.indices.randomElement(using: &generator) {
                bytes[index] = UInt8.random(in: 0...255, using: &generator)
            }
            let expected = String(validating: bytes, as: UTF8.self) != nil
            #expect(unsafe bytes.span.bytes.isValidUTF8 == expected, "\(bytes)")
            if let text = try? self.text(bytes, .fail) {
                #expect(text.utf8Span.isKnownASCII == bytes.allSatisfy { $0 < 128 }, "\(bytes)")
            } else {
                #expect(!expected)
            }
        }
    }
}

@Suite(.runLoop) struct LineEdgeTests {
    @Test func `a line that begins with the rest of a character is not known to be UTF-8`() throws {
        var framer = LineFramer()
        framer.checksUTF8 = true
        let line = Array("text of one line\n".utf8)
        let bytes = [0x80] + [[UInt8]](repeating: line, count: 100).flatMap(\.self)
        var known: [Bool] = []
        try unsafe framer.push(bytes.span.bytes) { _, line in
            known.append(line.isKnownUTF8)
            return .more
        }
        #expect(known == [false] + [Bool](repeating: true, count: 99))
    }
}

@Suite(.runLoop) struct ByteScannerTests {
    enum Scanner: CaseIterable {
        case best, baseline

        func callAsFunction(_ bytes: UnsafeBufferPointer<UInt8>, _ wanted: UInt8, capacity: Int) -> [UInt32] {
            let (start, length) = (bytes.baseAddress, bytes.count)
            var places = [UInt32](repeating: 0, count: capacity)
            let count = unsafe places.withUnsafeMutableBufferPointer { room in
                switch self {
                case .best: unsafe reactor_find_bytes(start, length, wanted, room.baseAddress, capacity)
                case .baseline:
                    unsafe reactor_find_bytes_baseline(start, length, wanted, room.baseAddress, capacity)
                }
            }
            return Array(places.prefix(count))
        }
    }

    /// Each length has its own allocation, so that the address sanitizer detects a read beyond it.
    @Test(arguments: Scanner.allCases)
    func `all alignments and lengths give what a naive scan gives`(scanner: Scanner) {
        var generator = SeededGenerator(seed: 1)
        for length in 0...200 {
            for alignment in stride(from: length % 8, to: 32, by: Depth.of(full: 1, quick: 8)) {
                let rarity = [1, 2, 9, 80].randomElement(using: &generator)!
                let bytes = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: alignment + length)
                defer { unsafe bytes.deallocate() }
                for index in bytes.indices {
                    let isWanted = Int.random(in: 0..<rarity, using: &generator) == 0
                    let other = ([9, 11, 138, 0, 255] as [UInt8]).randomElement(using: &generator)!
                    unsafe bytes[index] = isWanted ? 10 : other
                }
                let window = unsafe UnsafeBufferPointer(rebasing: bytes[alignment...])
                let expected = window.indices.filter { unsafe window[$0] == 10 }.map(UInt32.init)
                let isRight = unsafe scanner(window, 10, capacity: length) == expected
                if !isRight { Issue.record("length \(length), alignment \(alignment)") }
            }
        }
    }

    @Test(arguments: Scanner.allCases)
    func `every byte value is found, and no more offsets are written than fit`(scanner: Scanner) {
        let all = (0..<768).map { UInt8(truncatingIfNeeded: $0) }
        for wanted in UInt8.min...UInt8.max {
            let found = unsafe all.withUnsafeBufferPointer { unsafe scanner($0, wanted, capacity: 768) }
            #expect(found == [0, 256, 512].map { $0 + UInt32(wanted) })
        }
        for count in [10, 64, 100, 300] {
            let bytes = [UInt8](repeating: 10, count: count)
            for capacity in 0...count {
                let found = unsafe bytes.withUnsafeBufferPointer { all in
                    unsafe scanner(all, 10, capacity: capacity)
                }
                #expect(found == (0..<UInt32(capacity)).map { $0 })
            }
        }
    }

    @Test(arguments: [1, 2, 3]) func `a finder continues where its batch ended`(distance: Int) {
        let bytes = (0..<5000).map { UInt8($0 % distance == 0 ? 10 : 65) }
        var finder = ByteFinder(10)
        var found: [Int] = []
        while unsafe finder.advance(in: bytes.span.bytes) {
            found += (0..<finder.count).map { finder.start + Int(finder.offsets[$0]) }
        }
        #expect(found == Array(stride(from: 0, to: 5000, by: distance)))
    }
}

#endif
