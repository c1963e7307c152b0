import Dispatch
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// What another thread learns: while a loop is stuck, only other threads can ask.
@Suite(.runLoop) struct OtherThreadExplanationTests {
    private let loop = RunLoop.current

    /// The numbers of blocks that the loop names when another thread asks it.
    private func countsElsewhere() -> [Int] {
        let text = Shared("")
        onThreads(1) { _ in text.value = loop.explain() }
        return numbers(in: text.value)
    }

    @Test func `blocks are counted by their modes, until they have run`() {
        for mode in [RunLoop.Mode.custom, .custom, .common] { loop.perform(inModes: [mode]) {} }
        loop.hold(.outer)
        loop.poll(.outer)
        #expect(countsElsewhere() == [1, 2])
        loop.poll(.custom)
        #expect(countsElsewhere() == [1])
        loop.poll()
        #expect(countsElsewhere() == [])
    }

    @Test func `blocks of the next pass are counted apart from those of other modes`() {
        loop.perform(inModes: [.tracking]) {
            onThreads(1) { _ in for _ in 0..<12 { loop.perform {} } }
            #expect(countsElsewhere() == [12])
            onThreads(1) { _ in
                loop.perform(inModes: [.tracking]) {}
                loop.perform(inModes: [.common]) {}
                // The running mode is enough: these wait in no other.
                loop.perform(inModes: [.default, .tracking]) {}
            }
            #expect(countsElsewhere() == [3, 12])
        }
        loop.poll(.tracking)
    }

    @Test func `blocks that a nested run has taken in for the outer mode, or has run, are counted right`() {
        loop.hold(.custom)
        loop.perform(inModes: [.custom]) {}
        loop.perform {
            for _ in 0..<3 { loop.perform(inModes: [.default, .tracking]) {} }
            #expect(countsElsewhere() == [3, 1])
            loop.poll(.custom)
            loop.perform {}
            #expect(countsElsewhere() == [4])
        }
        loop.poll()
    }

    @Test func `asking a stream on another thread never destroys its delegate there`() throws {
        let places = Shared<Set<Bool>>([])
        let isOver = Shared(false)
        let pipe = try TestPipe()
        let input = InputStream(descriptor: pipe.readEnd)
        input.schedule(in: loop, forMode: .default)
        input.open()
        let asked = Carrier(input)
        let asker = try JoinableThread { while !isOver.value { _ = asked.value.explain() } }
        for _ in 0..<5_000 {
            let canary = AtEnd { [loop] in places.update { _ = $0.insert(loop.isCurrent) } }
            let delegate = HandlerDelegate { _, _ in withExtendedLifetime(canary) {} }
            input.delegate = delegate
        }
        isOver.value = true
        asker.join()
        input.close()
        #expect(places.value == [true])
    }

    @Test func `a descriptor that was closed under its source is named`() async {
        // In a process of its own, where no other test takes the number meanwhile.
        await #expect(processExitsWith: .success) {
            try onAThread {
                let pipe = try TestPipe()
                let copy = try pipe.readEnd.duplicate()
                for descriptor in [pipe.readEnd, copy] {
                    let source = DescriptorSource(descriptor, for: .readable) { _, _ in }
                    try RunLoop.current.add(source, forMode: .default)
                    let before = source.explain()
                    if descriptor == copy { try copy.close() }
                    #expect((source.explain() != before) == (descriptor == copy))
                }
            }
        }
    }

    @Test(arguments: [Kind.source, .descriptor, .timer])
    func `an item explains that its loop has ended, and is not told to be added to one`(kind: Kind) throws {
        let item = Shared<Carrier<TestItem>?>(nil)
        try onAThread {
            let made = try kind.makeItem {}
            try made.add(to: .current, .default)
            item.value = Carrier(made)
        }
        let explanation =
            switch item.value?.value {
            case .source(let item): item.explain()
            case .descriptor(let item): item.explain()
            case .timer(let item): item.explain()
            default: ""
            }
        #expect(explanation.contains("ended"), "\(explanation)")
        #expect(!RunLoop.Source {}.explain().contains("ended"))
    }
}
