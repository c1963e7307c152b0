import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// How long items and their closures live, whatever kind they are of.
@Suite(.runLoop) struct LifetimeTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    /// An item whose closure is all that retains a witness.
    private static func makeItem(
        _ kind: Kind, _ served: @escaping @Sendable () -> Void = {}
    ) throws -> (item: any TestItem, fate: Fate) {
        let witness = Witness()
        return (try kind.makeItem { withExtendedLifetime(witness, served) }, Fate(witness))
    }

    @Test(arguments: Kind.allCases)
    func `the loop retains an item that was added to it, and none that was removed`(kind: Kind) throws {
        weak var object: AnyObject?
        func add() throws -> Fate {
            let (item, fate) = try Self.makeItem(kind)
            object = item
            try item.add(to: loop, .custom)
            return fate
        }
        func remove() throws -> Fate {
            let (item, fate) = try Self.makeItem(kind)
            object = item
            for mode in [RunLoop.Mode.common, .custom] { try item.add(to: loop, mode) }
            for mode in [RunLoop.Mode.common, .custom] { item.remove(from: loop, mode) }
            #expect(item.isValid && !fate.isFreed)
            return fate
        }
        #expect(try remove().isFreed)
        #expect(object == nil)
        let fate = try add()
        #expect(object != nil && !fate.isFreed)
    }

    @Test(arguments: Kind.allCases)
    func `invalidating an item releases its closure at once, and the item from its loop`(kind: Kind) throws {
        weak var object: AnyObject?
        func end() throws {
            let (item, fate) = try Self.makeItem(kind)
            object = item
            for mode in [RunLoop.Mode.common, .custom] { try item.add(to: loop, mode) }
            item.invalidate()
            #expect(fate.isFreed)
            #expect(!item.isValid && !item.isIn(loop, .custom) && !item.isIn(loop, .common))
            try item.add(to: loop, .custom)
            #expect(!item.isIn(loop, .custom))
        }
        try end()
        #expect(object == nil)
        for mode in [RunLoop.Mode.default, .custom] { #expect(loop.poll(mode) == .finished) }
    }

    @Test(arguments: Kind.allCases, ["is invalidated", "is removed", "is removed, added and removed"])
    func
        `an item that leaves in its own callback is not called again, and its closure lives until that returns`(
            kind: Kind, how: String
        ) throws
    {
        let (own, fate) = (Shared<Carrier<any TestItem>?>(nil), Shared<Fate?>(nil))
        @Sendable func leave(_ item: any TestItem) {
            if how == "is invalidated" { return item.invalidate() }
            item.remove(from: loop, .common)
            guard how.contains("added") else { return }
            try? item.add(to: loop, .default)
            item.remove(from: loop, .default)
        }
        func add() throws {
            let (item, itsFate) = try Self.makeItem(kind) {
                trace("called")
                if let item = own.value.take()?.value { leave(item) }
                #expect(fate.value?.isFreed == false)
            }
            (own.value, fate.value) = (Carrier(item), itsFate)
            try item.add(to: loop, .common)
        }
        try add()
        let held = loop.hold(.default)
        for _ in 0..<2 { loop.poll() }
        #expect(trace.all == ["called"])
        #expect(fate.value?.isFreed == true)
        held.invalidate()
        #expect(loop.poll() == .finished)
    }

    @Test(arguments: Kind.allCases)
    func `a loop releases its items when its thread ends`(kind: Kind) throws {
        let fates = Shared<[Fate]>([])
        try onAThread {
            for mode in [RunLoop.Mode.default, .common, .custom] {
                let (item, fate) = try Self.makeItem(kind)
                try item.add(to: .current, mode)
                fates.update { $0.append(fate) }
            }
            RunLoop.current.poll(.inner)
            #expect(fates.value.allSatisfy { !$0.isFreed })
        }
        #expect(fates.value.allSatisfy { $0.isFreed })
    }

    @Test(arguments: Kind.allCases)
    func `an item that ends in a nested activation is not called outside`(kind: Kind) throws {
        let item = Carrier(try kind.makeItem { trace("called") })
        try item.value.add(to: loop, .default)
        loop.observeOnce(.beforeTimers) {
            loop.perform(after: .zero, inModes: [.inner]) { item.value.invalidate() }
            loop.poll(.inner)
        }
        loop.hold(.default)
        loop.poll()
        #expect(!item.value.isValid)
        #expect(trace.all.isEmpty)
    }

    @Test func `a source that another thread invalidates is never served after that`() throws {
        for _ in 0..<20 {
            let (isOver, isLate) = (Shared(false), Shared(false))
            let thread = try RunLoopThread(name: "serving")
            let source = RunLoop.Source { if isOver.value { isLate.value = true } }
            thread.runLoop.add(source, forMode: .default)
            for _ in 0..<20 {
                source.signal()
                thread.runLoop.wakeUp()
            }
            source.invalidate()
            // A callback that had begun may still be running: it ends before this.
            thread.runLoop.performAndWait(inModes: [.default]) { isOver.value = true }
            source.signal()
            thread.runLoop.wakeUp()
            thread.stop()
            #expect(!isLate.value)
        }
    }
}
