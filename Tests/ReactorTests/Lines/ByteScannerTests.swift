#if DEBUG

import CReactorLinux
import ReactorTesting
import Testing

@testable import Reactor

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
            for alignment in 0..<32 {
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
                let found = unsafe scanner(window, 10, capacity: length)
                #expect(found == expected, "length \(length), alignment \(alignment)")
            }
        }
    }

    @Test(arguments: Scanner.allCases)
    func `every byte value is found and no other`(scanner: Scanner) {
        let bytes = (0..<768).map { UInt8(truncatingIfNeeded: $0) }
        for wanted in UInt8.min...UInt8.max {
            let found = unsafe bytes.withUnsafeBufferPointer { unsafe scanner($0, wanted, capacity: 768) }
            #expect(found == [0, 256, 512].map { $0 + UInt32(wanted) })
        }
    }

    @Test(arguments: Scanner.allCases)
    func `no more offsets are written than there is room for`(scanner: Scanner) {
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
