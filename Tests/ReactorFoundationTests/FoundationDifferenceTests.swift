import Glibc
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// A delegate that records events.
private class Recorder: StreamDelegate {
    var events: [Stream.Event] = []
    var onEvent: (Stream, Stream.Event) -> Void = { _, _ in }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        events.append(eventCode)
        onEvent(aStream, eventCode)
    }
}

private final class SelfDelegatingStream: InputStream, StreamDelegate {
    var events: [Stream.Event] = []

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) { events.append(eventCode) }
}

// The comment before each test says what Foundation on Linux does instead.

@Suite(.runLoop) struct FoundationDifferenceTests {
    // Never calls a stream's delegate.
    @Test func `a stream calls its delegate`() {
        let (input, recorder) = (InputStream(data: Data([1, 2, 3])), Recorder())
        input.delegate = recorder
        recorder.onEvent = { stream, event in
            if event == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 2) }
            if event == .endEncountered { stream.close() }
        }
        input.schedule(in: .current, forMode: .default)
        input.open()
        while RunLoop.current.run(mode: .default, before: .distantFuture) {}
        #expect(
            recorder.events == [.openCompleted, .hasBytesAvailable, .hasBytesAvailable, .endEncountered])
    }

    // Schedules the stream in a mode named after the common modes, which never runs.
    @Test func `a stream in the common modes delivers events in each of them`() {
        for mode in [RunLoop.Mode.default, .tracking] {
            let (input, recorder) = (InputStream(data: Data([1])), Recorder())
            input.delegate = recorder
            input.schedule(in: .current, forMode: .common)
            input.open()
            #expect(RunLoop.current.run(mode: mode, before: .distantFuture))
            #expect(recorder.events.first == .openCompleted)
            input.close()
        }
    }

    // Has no way to add a common mode.
    @Test func `any mode can become a common mode`() {
        let (panel, fired) = (RunLoop.Mode.modalPanel, Shared(0))
        let timer = Timer(timeInterval: 0.001, repeats: false) { _ in fired.value += 1 }
        RunLoop.current.add(timer, forMode: .common)
        #expect(!RunLoop.current.run(mode: panel, before: .distantFuture))
        RunLoop.current.addCommonMode(panel)
        #expect(RunLoop.current.run(mode: panel, before: .distantFuture) && fired.value == 1)
    }

    // Fires at once.
    @Test func `a timer's first firing is one interval after its creation`() throws {
        let (start, fired) = (Date(), Shared<Date?>(nil))
        let timer = Timer(timeInterval: 0.02, repeats: false) { _ in fired.value = Date() }
        #expect(timer.fireDate >= start.addingTimeInterval(0.02 - 1e-6))
        RunLoop.current.add(timer, forMode: .default)
        RunLoop.current.run(mode: .default, before: .distantFuture)
        let date = try #require(fired.value)
        #expect(date >= timer.fireDate)
    }

    // Fires once and invalidates the timer.
    @Test(arguments: [0, -1] as [TimeInterval])
    func `a repeating timer with no interval repeats`(interval: TimeInterval) {
        let fired = Shared(0)
        let timer = Timer.scheduledTimer(withTimeInterval: interval, repeats: true) { timer in
            fired.value += 1
            if fired.value == 3 { timer.invalidate() }
        }
        #expect(timer.timeInterval == 0.000_1)
        RunLoop.current.run(mode: .default, before: .distantFuture)
        #expect(fired.value == 3)
    }

    // Is always zero.
    @Test func `a timer keeps its tolerance`() {
        let timer = Timer(timeInterval: 1, repeats: true) { _ in }
        timer.tolerance = 0.25
        #expect(timer.tolerance == 0.25)
    }

    // Leaks every timer and its closure.
    @Test(arguments: [true, false])
    func `an invalid timer is deallocated with its closure`(isFired: Bool) {
        weak var captured: Shared<Int>?
        weak var timer: Timer?
        do {
            let object = Shared(0)
            captured = object
            let new = Timer.scheduledTimer(withTimeInterval: 0, repeats: false) { _ in object.value += 1 }
            timer = new
            if !isFired { new.invalidate() }
        }
        RunLoop.current.run(mode: .default, before: .distantFuture)
        #expect(timer == nil && captured == nil)
    }

    // Is the reference date.
    @Test func `an invalid timer keeps its last fire date`() {
        let date = Date(timeIntervalSinceNow: 10)
        let timer = Timer(fire: date, interval: 1, repeats: true) { _ in }
        timer.invalidate()
        #expect(timer.fireDate == date)
    }

    // Does not wake the loop.
    @Test func `a block from another thread wakes the loop`() {
        let (loop, ran) = (RunLoop.current, Shared(false))
        let timer = Timer.scheduledTimer(withTimeInterval: 3600, repeats: true) { _ in }
        Thread {
            while !loop.isWaiting { sched_yield() }
            loop.perform {
                ran.value = true
                timer.invalidate()
            }
        }.start()
        while RunLoop.current.run(mode: .default, before: .distantFuture) {}
        #expect(ran.value)
    }

    // Has no stop, no wake-up, no custom sources and no observers.
    @Test func `a loop supports sources, observers, stop and wake-up`() {
        let loop = RunLoop.current
        var activities: [RunLoop.Activities] = []
        let observer = RunLoop.Observer(for: [.entry, .exit]) { _, activity in activities.append(activity)
        }
        loop.add(observer, forMode: .default)
        let source = RunLoop.Source { RunLoop.current.stop() }
        loop.add(source, forMode: .default)
        Thread {
            while !loop.isWaiting { sched_yield() }
            source.signal()
            loop.wakeUp()
        }.start()
        #expect(loop.run(in: .default) == .stopped)
        #expect(activities == [.entry, .exit])
        source.invalidate()
    }

    // Has no delayed blocks.
    @Test func `a block is performed after a delay unless it is invalidated`() {
        var ran: [String] = []
        RunLoop.current.perform(after: .milliseconds(1)) { ran.append("later") }
        let token = RunLoop.current.perform(after: .zero) { ran.append("never") }
        token.invalidate()
        #expect(ran.isEmpty)
        RunLoop.current.run(mode: .default, before: .distantFuture)
        #expect(ran == ["later"])
    }

    // Is nil.
    @Test func `a stream without a delegate is its own delegate`() {
        let stream = SelfDelegatingStream(data: Data([1]))
        stream.schedule(in: .current, forMode: .default)
        stream.open()
        RunLoop.current.run(mode: .default, before: .distantFuture)
        #expect(stream.events == [.openCompleted, .hasBytesAvailable])
        stream.close()
    }

    // Treats a FIFO as ready, and blocks the loop in its read.
    @Test func `an empty pipe does not block the loop`() async throws {
        try await onItsOwnThread {
            let (pipe, recorder, fired) = (Pipe(), Recorder(), Shared(0))
            let input = InputStream(fileAtPath: "/dev/fd/\(pipe.fileHandleForReading.fileDescriptor)")!
            input.delegate = recorder
            input.schedule(in: .current, forMode: .default)
            input.open()
            recorder.onEvent = { stream, event in
                guard event == .hasBytesAvailable else { return }
                #expect((stream as! InputStream).read(upTo: 10) == [1])
                stream.close()
            }
            Timer.scheduledTimer(withTimeInterval: 0.001, repeats: false) { _ in
                fired.value += 1
                pipe.fileHandleForWriting.write(Data([1]))
            }
            while RunLoop.current.run(mode: .default, before: .distantFuture) {}
            #expect(recorder.events == [.openCompleted, .hasBytesAvailable] && fired.value == 1)
        }
    }

    // Returns true, and no bytes.
    @Test func `getBuffer returns all bytes of data`() {
        let input = InputStream(data: Data([1, 2, 3]))
        input.open()
        var (bytes, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        #expect(input.getBuffer(&bytes, length: &count) && count == 3 && bytes?[2] == 3)
    }
}
