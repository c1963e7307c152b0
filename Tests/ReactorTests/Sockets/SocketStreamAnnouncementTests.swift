import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// The first events of a pair, whose connection may be up before the client has opened both halves.
@Suite(.runLoop) struct SocketStreamAnnouncementTests {
    enum Place: CaseIterable { case loop, queue }

    @Test(arguments: [SocketOrigin.host, .abstract, .descriptor], Place.allCases)
    func `both halves deliver openCompleted before bytes or space of either`(
        origin: SocketOrigin, place: Place
    ) throws {
        for (opensInputFirst, isProtected) in [
            (true, false), (false, false), (true, true), (false, true),
        ] {
            let (fixture, log) = (try SocketFixture(origin), Log(place))
            if isProtected { #expect(fixture.input.protect(by: MaskingSecurity())) }
            let halves = opensInputFirst ? fixture.streams : fixture.streams.reversed()
            for half in halves { log.receive(half) }
            try log.atOnce {
                halves[0].open()
                if isProtected { try fixture.peer.answerHello() }
                try fixture.peer.send(isProtected ? Masking.record(.data, [1]) : [1])
                waitUntilOpen([halves[0]])
                try waitForStreamsThread()
                halves[1].open()
            }
            log.wait(for: 4)
            fixture.closeBoth()
            #expect(Set(log.lines.value.prefix(2)) == ["input 1", "output 1"])
            #expect(Set(log.lines.value) == ["input 1", "output 1", "input 2", "output 4"])
        }
    }

    @Test(arguments: Place.allCases, [true, false])
    func `a half delivers events before the other is opened`(place: Place, opensOutput: Bool) throws {
        let fixture = try SocketFixture(place == .loop ? .ipv4 : .descriptor)
        let output = Carrier(fixture.output!)
        let log = Log(place) { line in if opensOutput, line == "input 1" { output.value.open() } }
        for half in fixture.streams { log.receive(half) }
        fixture.input.open()
        try fixture.peer.send([1])
        log.wait(for: opensOutput ? 4 : 2)
        fixture.closeBoth()
        #expect(log.lines.value.prefix(2) == ["input 1", opensOutput ? "output 1" : "input 2"])
    }

    @Test func `the bytes of a new connection keep their place among what the kernel reports`() throws {
        let (fixture, log, pipe) = (try SocketFixture(.descriptor), Log(.loop), try TestPipe())
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
            log.add("pipe")
            source.cancel()
        }
        try RunLoop.current.add(source, forMode: .default)
        RunLoop.current.poll(passes: 1)
        try fixture.peer.send([1])
        for half in fixture.streams {
            log.receive(half)
            half.open()
        }
        pipe.put()
        while log.lines.value.count < 5 { RunLoop.current.poll(passes: 1) }
        fixture.closeBoth()
        #expect(log.lines.value.filter { ["input 2", "pipe"].contains($0) } == ["input 2", "pipe"])
    }

    @Test func `a new connection without a delegate lets the loop sleep`() throws {
        let (fixture, log) = (try SocketFixture(.descriptor), Log(.loop))
        try fixture.peer.send([1])
        for half in fixture.streams {
            half.schedule(in: .current, forMode: .default)
            half.open()
        }
        #expect(RunLoop.current.passesInAWhile() < 10)
        for half in fixture.streams { half.delegate = log }
        log.wait(for: 4)
        fixture.closeBoth()
        #expect(log.lines.value.count == 4 && log.lines.value.last { $0.hasPrefix("input") } == "input 2")
    }

    @Test func `a loop sleeps in a nested run before the bytes of a new connection`() throws {
        let (fixture, passes) = (try SocketFixture(.descriptor), Shared(0))
        let log = Log(.loop) { line in
            if line == "input 1" { passes.value = RunLoop.current.passesInAWhile() }
        }
        try fixture.peer.send([1])
        for half in fixture.streams {
            log.receive(half)
            half.open()
        }
        waitUntil {
            RunLoop.current.poll(passes: 1)
            return log.lines.value.contains("input 2")
        }
        #expect((1..<10).contains(passes.value))
        fixture.closeBoth()
    }

    enum Other: CaseIterable {
        case onQueue, onOtherLoop, onIdleLoop, polled, inTask, withoutDelegate, closed, released
    }

    @Test(arguments: Other.allCases)
    func `a half delivers its events whatever becomes of the other`(other: Other) throws {
        let (fixture, log, queue) = (try SocketFixture(), Log(.loop), Log(.queue))
        let thread = try RunLoopThread(name: "other")
        let output = Carrier(fixture.output!)
        switch other {
        case .onQueue: queue.receive(output.value)
        case .onOtherLoop, .onIdleLoop:
            output.value.delegate = queue
            output.value.schedule(in: thread.runLoop, forMode: other == .onIdleLoop ? .custom : .default)
        case .withoutDelegate: output.value.schedule(in: .current, forMode: .default)
        case .polled, .inTask, .closed, .released: break
        }
        log.receive(fixture.input)
        if other == .inTask { Task { try await output.value.writeAll([7]) } } else { output.value.open() }
        if other == .closed { output.value.close() }
        if other == .released { fixture.releaseOutput() }
        fixture.input.open()
        let peer = try fixture.peer
        peer.send([1])
        log.wait(for: 2)
        #expect(log.lines.value == ["input 1", "input 2"])
        if other == .inTask { #expect(peer.receive(1) == [7]) }
        if other == .onQueue || other == .onOtherLoop {
            queue.wait(for: 2)
            #expect(queue.lines.value == ["output 1", "output 4"])
        }
        if other == .withoutDelegate {
            output.value.delegate = log
            log.wait(for: 4)
        }
        fixture.input.close()
        fixture.output?.close()
        thread.stop()
    }
}

/// The events of both halves, in order: the half, and the number of the event.
private final class Log: StreamDelegate, Sendable {
    let lines = Shared<[String]>([])
    private let place: SocketStreamAnnouncementTests.Place
    private let queue = DispatchQueue(label: "events")
    private let onLine: @Sendable (String) -> Void

    init(
        _ place: SocketStreamAnnouncementTests.Place,
        _ onLine: @escaping @Sendable (String) -> Void = { _ in }
    ) {
        (self.place, self.onLine) = (place, onLine)
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        add("\(aStream is InputStream ? "input" : "output") \(eventCode.rawValue)")
    }

    func add(_ line: String) {
        lines.update { $0.append(line) }
        onLine(line)
    }

    /// Receives the events of `half` on the queue, or on the current loop.
    func receive(_ half: Stream) {
        half.delegate = self
        if place == .queue { return half.setDispatchQueue(queue) }
        half.schedule(in: .current, forMode: .default)
    }

    /// Calls `body` as a client does: no event comes in between.
    func atOnce(_ body: () throws -> Void) rethrows {
        if place == .queue { try queue.sync(execute: body) } else { try body() }
    }

    /// Waits for `count` events.
    func wait(for count: Int) {
        if place == .queue { return lines.wait { $0.count >= count ? () : nil } }
        RunLoop.current.serve { lines.value.count >= count }
    }
}
