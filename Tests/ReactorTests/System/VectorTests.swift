import Testing

@testable import Reactor

@Suite struct VectorTests {
    @Test func `what was appended is there, in order, however much it is`() {
        var vector = Vector<String>()
        for number in 0..<1000 { vector.append("element \(number)") }
        vector[7] = "another"
        let last = vector.removeLast()
        let rest = vector.indices.map { vector[$0] }
        #expect(last == "element 999")
        #expect(rest == (0..<999).map { $0 == 7 ? "another" : "element \($0)" })
    }

    @Test func `elements are let go of when they are removed, replaced, or left over at the end`() {
        var fates: [Fate] = []
        do {
            var vector = Vector<Witness?>()
            for _ in 0..<6 {
                let witness = Witness()
                fates.append(Fate(witness))
                vector.append(witness)
            }
            _ = vector.removeLast()
            vector[0] = nil
            #expect(fates.map(\.isFreed) == [true, false, false, false, false, true])
        }
        #expect(fates.allSatisfy { $0.isFreed })
    }

    @Test func `it is used again after all has been removed`() {
        var vector = Vector<[Int]>()
        for number in 0..<10 { vector.append([number]) }
        vector.removeAll()
        let first = vector.first
        #expect(first == nil)
        vector.append([5])
        let second = vector.first
        #expect(second == [5])
    }

    @Test func `an element that is not there traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            var vector = Vector<Int>()
            vector.append(1)
            _ = vector[1]
        }
        #expect(result.message.contains("no such element"))
    }
}
