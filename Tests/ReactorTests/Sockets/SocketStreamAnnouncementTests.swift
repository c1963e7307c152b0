import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// The first events of a pair, whose connection may be up before the client has opened both halves.
@Suite(.runLoop) struct SocketStreamAnnouncementTests {
    enum Place: CaseIterable { case loop, queue }

    @Test(arguments: [SocketOrigin.host, .abstract, .descriptor], Place.allCases)
    func `both halves deliver openCompleted before bytes or space of either, however fast the connection is`(
        origin: SocketOrigin, place: Place
    ) throws {
        for (opensInputFirst, isProtected) in [
            (true, false), (false, false), (true, true), (false, true),
        ] {
            let (fixture, log, queue) = (try SocketFixture(origin), Log(), DispatchQueue(label: "events"))
            if isProtected { #expect(fixture.input.protect(by: MaskingSecurity())) }
            // On the queue, as a client does: no event comes in between.
            try (place == .queue ? queue : DispatchQueue(label: "")).sync {
                let halves = opensInputFirst ? fixture.streams : fixture.streams.reversed()
                for half in halves { log.receive(half, on: place == .queue ? queue : nil) }
                halves[0].open()
                if isProtected { try fixture.peer.answerHello() }
                try fixture.peer.send(isProtected ? Masking.record(.data, [1]) : [1])
                while halves[0].streamStatus == .opening { sched_yield() }
                try waitForStreamsThread()
                halves[1].open()
            }
            log.wait(for: 4, on: place)
            fixture.closeBoth()
            #expect(
                Set(log.lines.value.prefix(2)) == ["input 1", "output 1"], "\(place): \(log.lines.value)")
            #expect(Set(log.lines.value) == ["input 1", "output 1", "input 2", "output 4"])
        }
    }

    @Test(arguments: Place.allCases)
    func `a server that speaks first is heard after openCompleted of both halves, in many connections`(
        place: Place
    ) throws {
        let server = try SocketServer()
        let greeter = try JoinableThread(name: "greeter") {
            while let peer = try? server.accept() { peer.send([1]) }
        }
        for _ in 0..<announcementCount {
            let (log, queue) = (Log(), DispatchQueue(label: "events"))
            let (input, output) = Stream.connection(to: server.address)
            for half in [input, output] as [Stream] {
                log.receive(half, on: place == .queue ? queue : nil)
            }
            let open = { for half in [input, output] as [Stream] { half.open() } }
            if place == .queue { queue.sync(execute: open) } else { open() }
            log.wait(for: 4, on: place)
            for half in [input, output] as [Stream] { half.close() }
            #expect(
                Set(log.lines.value.prefix(2)) == ["input 1", "output 1"], "\(place): \(log.lines.value)")
        }
        server.stopAccepting()
        greeter.join()
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor], Place.allCases)
    func `a half delivers its events though the other is opened in its callback, or never`(
        origin: SocketOrigin, place: Place
    ) throws {
        for opensOutput in [true, false] {
            let (fixture, queue) = (try SocketFixture(origin), DispatchQueue(label: "events"))
            let output = Carrier(fixture.output!)
            let log = Log { line in if opensOutput, line == "input 1" { output.value.open() } }
            for half in fixture.streams { log.receive(half, on: place == .queue ? queue : nil) }
            fixture.input.open()
            try fixture.peer.send([1])
            log.wait(for: opensOutput ? 4 : 2, on: place)
            fixture.closeBoth()
            let start = opensOutput ? ["input 1", "output 1"] : ["input 1", "input 2"]
            #expect(Array(log.lines.value.prefix(2)) == start)
        }
    }

    @Test(arguments: Place.allCases)
    func `each half that was opened fails if nothing can be connected, and no other`(place: Place)
        async throws
    {
        try await onItsOwnThread {
            for opensOutput in [true, false] {
                let (log, queue) = (Log(), DispatchQueue(label: "events"))
                let (input, output) = Stream.connection(to: try refusingAddress())
                let halves = [input, output] as [Stream]
                for half in halves { log.receive(half, on: place == .queue ? queue : nil) }
                queue.sync {
                    input.open()
                    while input.streamStatus == .opening { sched_yield() }
                    if opensOutput { output.open() }
                }
                log.wait(for: opensOutput ? 2 : 1, on: place)
                try waitForStreamsThread()
                #expect(log.lines.value.sorted() == (opensOutput ? ["input 8", "output 8"] : ["input 8"]))
                withExtendedLifetime(halves) {}
            }
        }
    }

    enum Other: CaseIterable {
        case onQueue, onOtherLoop, onIdleLoop, polled, inTask, withoutDelegate, closed, released
    }

    @Test(arguments: Other.allCases)
    func `a half delivers its events whatever becomes of the other`(other: Other) async throws {
        let task = Shared<Task<Void, any Error>?>(nil)
        try await onItsOwnThread {
            let (fixture, log, queue) = (try SocketFixture(), Log(), DispatchQueue(label: "events"))
            let thread = try RunLoopThread(name: "other")
            let output = fixture.output!
            switch other {
            case .onQueue: log.receive(output, on: queue)
            case .onOtherLoop, .onIdleLoop:
                output.delegate = log
                output.schedule(
                    in: thread.runLoop, forMode: other == .onIdleLoop ? .custom : .default)
            case .withoutDelegate: output.schedule(in: .current, forMode: .default)
            case .polled, .inTask, .closed, .released: break
            }
            log.receive(fixture.input, on: nil)
            if other != .inTask { output.open() }
            if other == .closed { output.close() }
            if other == .released { fixture.releaseOutput() }
            if other == .inTask {
                let output = Carrier(output)
                task.value = Task { try await output.value.writeAll([7]) }
            }
            fixture.input.open()
            let peer = try fixture.peer
            peer.send([1])
            RunLoop.current.serve { log.lines(of: "input").count == 2 }
            #expect(log.lines(of: "input") == ["input 1", "input 2"])
            if other == .inTask { #expect(peer.receive(1) == [7]) }
            if other == .onQueue || other == .onOtherLoop {
                waitUntil { log.lines(of: "output").count == 2 }
                #expect(log.lines(of: "output") == ["output 1", "output 4"])
            }
            if other == .withoutDelegate {
                output.delegate = log
                RunLoop.current.serve { log.lines(of: "output").count == 2 }
            }
            fixture.input.close()
            fixture.output?.close()
            thread.stop()
        }
        try await task.value?.value
    }
}

/// Enough to show what happens once in a hundred connections.
private let announcementCount = 300

/// The events of both halves, in order: the half, and the number of the event.
private final class Log: StreamDelegate, Sendable {
    let lines = Shared<[String]>([])
    private let onLine: @Sendable (String) -> Void

    init(_ onLine: @escaping @Sendable (String) -> Void = { _ in }) { self.onLine = onLine }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        let line = "\(aStream is InputStream ? "input" : "output") \(eventCode.rawValue)"
        lines.update { $0.append(line) }
        onLine(line)
    }

    /// Receives the events of `half` on `queue`, or else on the current loop.
    func receive(_ half: Stream, on queue: DispatchQueue?) {
        half.delegate = self
        if let queue { half.setDispatchQueue(queue) } else { half.schedule(in: .current, forMode: .default) }
    }

    func lines(of half: String) -> [String] { lines.value.filter { $0.hasPrefix(half) } }

    /// Waits for `count` events.
    func wait(for count: Int, on place: SocketStreamAnnouncementTests.Place) {
        if place == .queue { return waitUntil { lines.value.count >= count } }
        RunLoop.current.serve { lines.value.count >= count }
    }
}
