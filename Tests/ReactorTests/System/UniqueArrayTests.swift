#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct UniqueArrayTests {
    @Test func `appended elements are there, in order, however many they are`() {
        var array = UniqueArray<String>()
        for number in 0..<1000 { array.append("element \(number)") }
        array[7] = "another"
        let last = array.removeLast()
        let rest = array.indices.map { array[$0] }
        #expect(last == "element 999")
        #expect(rest == (0..<999).map { $0 == 7 ? "another" : "element \($0)" })
    }

    @Test func `elements are released when they are removed, replaced, or left over at the end`() {
        var fates: [Fate] = []
        do {
            var array = UniqueArray<Witness?>()
            for _ in 0..<6 {
                let witness = Witness()
                fates.append(Fate(witness))
                array.append(witness)
            }
            _ = array.removeLast()
            array[0] = nil
            #expect(fates.map(\.isFreed) == [true, false, false, false, false, true])
        }
        #expect(fates.allSatisfy { $0.isFreed })
    }

    @Test func `the array can be used again after all elements have been removed`() {
        var array = UniqueArray<[Int]>()
        for number in 0..<10 { array.append([number]) }
        while !array.isEmpty { _ = array.removeLast() }
        let first = array.first
        #expect(first == nil)
        array.append([5])
        let second = array.first
        #expect(second == [5])
    }

    @Test func `an element that is not there traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            var array = UniqueArray<Int>()
            array.append(1)
            _ = array[1]
        }
        #expect(result.message.contains("the index is out of bounds"))
    }
}

#endif
