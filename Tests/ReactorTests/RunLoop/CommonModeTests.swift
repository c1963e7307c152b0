import Reactor
import ReactorTesting
import Testing

/// One kind of item, added and removed in the same way as every other.
enum Kind: CaseIterable, Sendable {
    case source, descriptor, timer, observer
}

/// An item of some kind that notes its name when it is served, for as long as it is asked to.
struct TestItem {
    let kind: Kind
    let pipe: TestPipe
    let source: RunLoop.Source
    let descriptor: DescriptorSource
    let timer: Timer
    let observer: RunLoop.Observer

    init(_ kind: Kind, _ trace: Trace, _ name: String = "served") throws {
        let pipe = try TestPipe()
        pipe.put()
        self.kind = kind
        self.pipe = pipe
        source = RunLoop.Source { trace(name) }
        descriptor = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in trace(name) }
        timer = Timer(fireDate: .distantPast) { _ in trace(name) }
        observer = RunLoop.Observer(for: .beforeSources) { _, _ in trace(name) }
    }

    func add(to loop: RunLoop, _ mode: RunLoop.Mode) throws {
        switch kind {
        case .source: loop.add(source, forMode: mode)
        case .descriptor: try loop.add(descriptor, forMode: mode)
        case .timer: loop.add(timer, forMode: mode)
        case .observer: loop.add(observer, forMode: mode)
        }
    }

    func remove(from loop: RunLoop, _ mode: RunLoop.Mode) {
        switch kind {
        case .source: loop.remove(source, forMode: mode)
        case .descriptor: loop.remove(descriptor, forMode: mode)
        case .timer: loop.remove(timer, forMode: mode)
        case .observer: loop.remove(observer, forMode: mode)
        }
    }

    func isIn(_ loop: RunLoop, _ mode: RunLoop.Mode) -> Bool {
        switch kind {
        case .source: loop.contains(source, forMode: mode)
        case .descriptor: loop.contains(descriptor, forMode: mode)
        case .timer: loop.contains(timer, forMode: mode)
        case .observer: loop.contains(observer, forMode: mode)
        }
    }

    /// The modes, of those that the tests use, in which the item says that it is.
    func modes(_ loop: RunLoop) -> [String] {
        let named: [(RunLoop.Mode, String)] = [
            (.common, "common"), (.default, "default"), (.tracking, "tracking"), (.custom, "custom"),
        ]
        return named.filter { isIn(loop, $0.0) }.map(\.1)
    }

    /// Whether a poll of `mode` serves the item. A timer that has fired is over.
    func isServed(_ loop: RunLoop, _ mode: RunLoop.Mode, _ trace: Trace) -> Bool {
        source.signal()
        loop.hold(mode)
        let before = trace.all.count
        loop.poll(mode)
        return trace.all.count > before
    }
}

@Suite(.runLoop) struct CommonModeTests {
    @Test(arguments: Kind.allCases)
    func `an item of the common modes is a common item and is in every common mode`(kind: Kind) async throws {
        let trace = try await traced { loop, trace in
            let item = try TestItem(kind, trace)
            try item.add(to: loop, .common)
            trace(item.modes(loop).joined(separator: " "))
            #expect(!item.isServed(loop, .custom, trace))
            #expect(item.isServed(loop, .tracking, trace))
        }
        #expect(trace == ["common default tracking", "served"])
    }

    @Test(arguments: Kind.allCases)
    func `a mode that becomes common gets the existing common items`(kind: Kind) async throws {
        let trace = try await traced { loop, trace in
            let item = try TestItem(kind, trace)
            try item.add(to: loop, .common)
            loop.poll(.custom)
            loop.addCommonMode(.custom)
            trace(item.modes(loop).joined(separator: " "))
            #expect(item.isServed(loop, .custom, trace))
        }
        #expect(trace == ["common default tracking custom", "served"])
    }

    @Test(arguments: [true, false])
    func `a source that joins the common modes while a mode becomes common is scheduled in that mode`(
        isOnLoopThread: Bool
    ) async throws {
        let trace = Trace()
        try await withRunLoopThread(name: "becoming common") { thread in
            let source = RunLoop.Source(
                scheduled: { loop, mode in
                    if mode == .default { loop.addCommonMode(.custom) }
                    trace(mode.rawValue)
                }, perform: {})
            let add = { @Sendable in thread.runLoop.add(source, forMode: .common) }
            try await onItsOwnThread {
                if isOnLoopThread { thread.runLoop.performAndWait(add) } else { add() }
                thread.runLoop.performAndWait {}
            }
        }
        let modes: [RunLoop.Mode] = [.custom, .default, .tracking]
        #expect(trace.all.sorted() == modes.map(\.rawValue).sorted())
    }

    @Test(arguments: Kind.allCases)
    func `a mode that has become common gets later common items too`(kind: Kind) async throws {
        let trace = try await traced { loop, trace in
            loop.addCommonMode(.custom)
            let item = try TestItem(kind, trace)
            try item.add(to: loop, .common)
            #expect(item.isServed(loop, .custom, trace))
        }
        #expect(trace == ["served"])
    }

    @Test(arguments: Kind.allCases)
    func
        `removal from the common modes removes an item from each of them, even from one that was named by itself`(
            kind: Kind
        )
        async throws
    {
        let trace = try await traced { loop, trace in
            let item = try TestItem(kind, trace)
            try item.add(to: loop, .default)
            try item.add(to: loop, .common)
            try item.add(to: loop, .custom)
            item.remove(from: loop, .common)
            trace(item.modes(loop).joined(separator: " "))
            #expect(!item.isServed(loop, .default, trace))
        }
        #expect(trace == ["custom"])
    }

    @Test(arguments: Kind.allCases)
    func `leaving the common modes does nothing for an item that is not a common one`(kind: Kind) async throws
    {
        let trace = try await traced { loop, trace in
            let item = try TestItem(kind, trace)
            try item.add(to: loop, .default)
            item.remove(from: loop, .common)
            trace(item.modes(loop).joined(separator: " "))
            #expect(item.isServed(loop, .default, trace))
        }
        #expect(trace == ["default", "served"])
    }

    @Test(arguments: Kind.allCases)
    func `removal from one common mode keeps the item common and in the others`(kind: Kind) async throws {
        let trace = try await traced { loop, trace in
            let item = try TestItem(kind, trace)
            try item.add(to: loop, .common)
            item.remove(from: loop, .tracking)
            trace(item.modes(loop).joined(separator: " "))
            #expect(!item.isServed(loop, .tracking, trace))
            #expect(item.isServed(loop, .default, trace))
        }
        #expect(trace == ["common default", "served"])
    }

    @Test(arguments: Kind.allCases)
    func `a common item that left each common mode still gets a mode that becomes common`(kind: Kind)
        async throws
    {
        let trace = try await traced { loop, trace in
            let item = try TestItem(kind, trace)
            try item.add(to: loop, .common)
            item.remove(from: loop, .tracking)
            item.remove(from: loop, .default)
            trace(item.modes(loop).joined(separator: " "))
            loop.addCommonMode(.custom)
            trace(item.modes(loop).joined(separator: " "))
            #expect(item.isServed(loop, .custom, trace))
        }
        #expect(trace == ["common", "common custom", "served"])
    }

    @Test(arguments: Kind.allCases)
    func `adding an item twice is adding it once`(kind: Kind) async throws {
        let trace = try await traced { loop, trace in
            let item = try TestItem(kind, trace)
            for mode: RunLoop.Mode in [.default, .default, .common, .common, .default] {
                try item.add(to: loop, mode)
            }
            #expect(item.isServed(loop, .default, trace))
        }
        #expect(trace == ["served"])
    }
}
