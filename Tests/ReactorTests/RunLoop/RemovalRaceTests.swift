import Reactor
import ReactorTesting
import Testing

extension RunLoop {
    /// Makes `mode` common on another thread, and returns when that call has; this loop has yet to take it in.
    fileprivate func addCommonModeElsewhere(_ mode: Mode) throws {
        try JoinableThread(name: "adding a mode") { self.addCommonMode(mode) }.join()
    }
}

/// What `body` notes of an item in the common modes, to which another thread has just added the custom one.
private func tracedInNewCommonMode(
    _ kind: Kind, namedIn named: RunLoop.Mode? = nil, removedFrom removed: RunLoop.Mode? = nil,
    _ body: @escaping @Sendable (RunLoop, TestItem, Trace) throws -> Void
) async throws -> [String] {
    try await traced { loop, trace in
        for mode in [RunLoop.Mode.custom, .default] { loop.hold(mode) }
        let item = try TestItem(kind, trace)
        try item.add(to: loop, .common)
        if let named { try item.add(to: loop, named) }
        if let removed { item.remove(from: loop, removed) }
        try loop.addCommonModeElsewhere(.custom)
        try body(loop, item, trace)
    }
}

@Suite(.runLoop) struct RemovalRaceTests {
    @Test(arguments: Kind.allCases)
    func `an item removed from a mode that another thread has made common stays out of it`(kind: Kind)
        async throws
    {
        let trace = try await tracedInNewCommonMode(kind) { loop, item, trace in
            trace(item.modes(loop).joined(separator: " "))
            item.remove(from: loop, .custom)
            trace(item.modes(loop).joined(separator: " "))
            #expect(!item.isServed(loop, .custom, trace))
            trace(item.modes(loop).joined(separator: " "))
            #expect(item.isServed(loop, .default, trace))
        }
        let left = "common default tracking"
        #expect(trace == ["\(left) custom", left, left, "served"])
    }

    @Test(arguments: [Kind.source, .timer])
    func `an item that other threads remove from a mode just made common stays out of it`(kind: Kind)
        async throws
    {
        let trace = try await tracedInNewCommonMode(kind) { loop, item, trace in
            let (source, timer) = (item.source, item.timer)
            try JoinableThread(name: "removing") {
                if kind == .source { loop.remove(source, forMode: .custom) }
                if kind == .timer { loop.remove(timer, forMode: .custom) }
            }.join()
            #expect(!item.isServed(loop, .custom, trace))
            #expect(item.isServed(loop, .default, trace))
        }
        #expect(trace == ["served"])
    }

    @Test(arguments: Kind.allCases)
    func `an item named in a mode that became common elsewhere leaves it by one removal`(kind: Kind)
        async throws
    {
        let trace = try await tracedInNewCommonMode(kind, namedIn: .custom) {
            loop, item, trace in
            item.remove(from: loop, .custom)
            #expect(!item.isServed(loop, .custom, trace))
            trace(item.modes(loop).joined(separator: " "))
            try item.add(to: loop, .custom)
            trace(item.modes(loop).joined(separator: " "))
        }
        #expect(trace == ["common default tracking", "common default tracking custom"])
    }

    @Test(arguments: Kind.allCases)
    func `an item removed from two common modes is in neither`(kind: Kind)
        async throws
    {
        let trace = try await tracedInNewCommonMode(kind, removedFrom: .tracking) {
            loop, item, trace in
            item.remove(from: loop, .custom)
            #expect(!item.isServed(loop, .custom, trace))
            trace(item.modes(loop).joined(separator: " "))
        }
        #expect(trace == ["common default"])
    }

    @Test func `a stream removed from a mode that another thread has made common stays out of it`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            for mode in [RunLoop.Mode.custom, .default] { loop.hold(mode) }
            let recorder = Recorder()
            let input = InputStream(data: [1, 2, 3])
            input.start(recorder, mode: .common)
            try loop.addCommonModeElsewhere(.custom)
            input.remove(from: loop, forMode: .custom)
            loop.poll(.custom)
            #expect(recorder.events.isEmpty)
            loop.poll()
            #expect(recorder.events == [.openCompleted, .hasBytesAvailable])
        }
    }
}
