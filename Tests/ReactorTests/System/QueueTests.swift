#if DEBUG

import ReactorTestSupport
import ReactorTesting
import Testing

@testable import Reactor

@Suite struct QueueTests {
    @Test func `elements leave in the order in which they came, also when the queue takes those of another`()
    {
        var generator = SeededGenerator(seed: 3)
        var (queue, other, model) = (Queue<Int>(), Queue<Int>(), [Int]())
        for number in 0..<10_000 {
            switch generator.next() % 5 {
            case 0, 1:
                queue.append(number)
                model.append(number)
            case 2, 3: #expect(queue.popFirst() == (model.isEmpty ? nil : model.removeFirst()))
            default:
                for extra in 0..<3 { other.append(-extra) }
                model += [0, -1, -2]
                queue.takeAll(of: &other)
            }
            #expect(queue.count == model.count && other.isEmpty)
        }
        for number in model { #expect(queue.popFirst() == number) }
        #expect(queue.popFirst() == nil && queue.isEmpty)
    }

    @Test func `an element is released when it is taken, whatever waits behind it`() {
        var queue = Queue<AtEnd>()
        let freed = Shared(0)
        for _ in 0..<3 { queue.append(AtEnd { freed.value += 1 }) }
        for count in 1...3 {
            _ = queue.popFirst()
            #expect(freed.value == count)
        }
    }
}

#endif
