#if DEBUG

import SystemPackage
import ReactorTesting
import Testing

@testable import Reactor

/// Single inputs. ``StreamMachineModelTests`` has their combinations.
@Suite(.runLoop) struct StreamMachineTests {
    private let loop = LoopIdentity(number: 1)
    private let poll = Poll(loop: LoopIdentity(number: 1), count: 1)

    /// An open machine, scheduled on a loop.
    private func opened(
        _ event: Stream.Event = .hasBytesAvailable, _ source: ReadinessSource = .kernel
    ) -> StreamMachine {
        var machine = StreamMachine(event)
        _ = machine.open()
        machine.opened(source, isAtEnd: false)
        _ = machine.schedule(on: loop, .default, common: ModeSet(.default))
        return machine
    }

    private func serve(_ machine: inout StreamMachine, isReady: Bool = false, since: UInt64? = nil)
        -> StreamMachine.Action
    {
        machine.serve(after: poll, isReady: isReady, since: since) { _ in true }
    }

    /// All events of a pass.
    private func deliver(_ machine: inout StreamMachine, isReady: Bool = false) -> [Stream.Event] {
        var (action, events) = (serve(&machine, isReady: isReady), [Stream.Event]())
        while case .deliver(let event) = action {
            events.append(event)
            action = machine.delivered(event, toDelegate: true, mayContinue: true)
        }
        return events
    }

    private func transfer(_ machine: inout StreamMachine) {
        #expect(machine.begin(count: 1, after: poll) == .begun)
        machine.finishTransfer(Transfer(count: 1))
    }

    @Test func `a report that the backend has received is not lost when a transfer overtakes it`() {
        for (source, action) in [
            (ReadinessSource.kernelThroughBackend, StreamMachine.Action.askBackend), (.kernel, .none),
        ] {
            var machine = opened(.hasBytesAvailable, source)
            _ = deliver(&machine)
            transfer(&machine)
            transfer(&machine)
            #expect(serve(&machine, isReady: true, since: 1) == action)
        }
    }

    @Test func `a stream is opened once`() {
        var machine = StreamMachine(.hasBytesAvailable)
        let (before, first) = (machine.status, machine.open())
        #expect(before == .notOpen && first && machine.status == .opening)
        machine.opened(.kernel, isAtEnd: false)
        let second = machine.open()
        #expect(machine.status == .open && !second)
    }

    @Test func `a stream that was never opened is not closed`() {
        var machine = StreamMachine(.hasBytesAvailable)
        let isClosed = machine.close()
        #expect(!isClosed && machine.status == .notOpen && !machine.isClosed)
    }

    @Test func `closing releases once, and for good`() {
        var machine = opened()
        let (first, second) = (machine.close(), machine.close())
        let isReopened = machine.open()
        #expect(first && !second && !isReopened && machine.status == .closed)
    }

    @Test func `a stream closed while opening stays closed`() {
        var machine = StreamMachine(.hasBytesAvailable)
        _ = machine.open()
        _ = machine.close()
        machine.opened(.kernel, isAtEnd: false)
        machine.fail(Errno.ioError)
        #expect(machine.status == .closed && machine.pending.isEmpty)
    }

    @Test func `an error outlives the closing, which still releases once`() {
        var machine = opened()
        machine.fail(Errno.ioError)
        let (first, second) = (machine.close(), machine.close())
        #expect(first && !second && machine.status == .error && machine.error as? Errno == .ioError)
    }

    @Test func `the first error stays`() {
        var machine = opened()
        machine.fail(Errno.ioError)
        machine.fail(Errno.noSpace)
        #expect(machine.error as? Errno == .ioError)
    }

    @Test func `a closed stream fails only if accepted bytes are lost, and delivers nothing`() {
        var machine = opened()
        _ = machine.close()
        machine.fail(Errno.ioError)
        #expect(machine.error == nil)
        machine.loseBytes(Errno.noSpace)
        #expect(machine.status == .error && machine.error as? Errno == .noSpace && machine.pending.isEmpty)
    }

    @Test func `an error at opening is all that is delivered`() {
        var machine = StreamMachine(.hasBytesAvailable)
        _ = machine.open()
        _ = machine.schedule(on: loop, .default, common: ModeSet(.default))
        machine.fail(Errno.noSuchFileOrDirectory)
        #expect(deliver(&machine) == [.errorOccurred])
    }

    @Test func `an end replaces bytes that are pending`() {
        var machine = opened()
        let action = serve(&machine, isReady: true)
        #expect(action == .deliver(.openCompleted) && machine.pending == .hasBytesAvailable)
        machine.reachEnd()
        let next = machine.delivered(.openCompleted, toDelegate: true, mayContinue: true)
        #expect(next == .none && deliver(&machine) == [.endEncountered] && machine.status == .atEnd)
    }

    @Test func `events of a batch are delivered in the order of their bits`() {
        var machine = opened()
        #expect(deliver(&machine, isReady: true) == [.openCompleted, .hasBytesAvailable])
        #expect(deliver(&machine) == [])
    }

    @Test func `a delivered event is delivered again after a read`() {
        var machine = opened()
        _ = deliver(&machine, isReady: true)
        #expect(serve(&machine, isReady: true) == .disarm && machine.pending.isEmpty)
        transfer(&machine)
        #expect(serve(&machine, isReady: true, since: machine.transfers) == .deliver(.hasBytesAvailable))
    }

    @Test func `a transfer drops a pending event`() {
        var machine = opened()
        _ = serve(&machine, isReady: true)
        #expect(machine.pending == .hasBytesAvailable)
        #expect(machine.begin(count: 1, after: poll) == .begun)
        #expect(machine.pending.isEmpty && machine.status == .reading)
        machine.finishTransfer(Transfer(count: 1))
        #expect(machine.status == .open)
    }

    @Test
    func
        `after a transfer outside the callback the kernel is asked again, and ignored after another transfer`()
    {
        var machine = opened()
        _ = deliver(&machine)
        transfer(&machine)
        #expect(serve(&machine, isReady: true) == .askKernel(since: 1))
        transfer(&machine)
        #expect(serve(&machine, isReady: true, since: 1) == .none && machine.pending.isEmpty)
    }

    @Test func `room is checked before it is delivered, and withdrawn if there is none`() {
        var machine = opened(.hasSpaceAvailable, .kernelWhenFull)
        _ = deliver(&machine)
        machine.noteAvailability(.waiting, since: 0)
        #expect(serve(&machine) == .checkRoom(since: 0))
        machine.checked(.full, since: 0)
        #expect(machine.pending.isEmpty && machine.needsWatch(isDisarmed: false))
        #expect(serve(&machine, isReady: true) == .checkRoom(since: 0))
        machine.checked(.found, since: 0)
        #expect(deliver(&machine) == [.hasSpaceAvailable])
    }

    @Test func `a loop that has taken its update is asked again after a change only`() {
        var machine = opened()
        #expect(machine.next == .updateLoops)
        let (first, second) = (machine.requestUpdate(of: loop), machine.requestUpdate(of: loop))
        let update = machine.update(loop)
        #expect(first && !second && update?.isWatched == true && update?.isSignalled == true)
        #expect(machine.next == .signal)
        _ = deliver(&machine)
        #expect(machine.next == .none)
    }

    @Test func `a stream that leaves its last mode of a loop leaves the loop`() {
        let common = ModeSet(.default)
        var machine = opened()
        _ = machine.schedule(on: loop, .tracking, common: common)
        let removals = [RunLoop.Mode.default, .tracking, .tracking].map {
            switch machine.unschedule(from: loop, $0, common: common) {
            case .none: "none"
            case .changed: "changed"
            case .left(let entry): "left \(entry.loop.number)"
            }
        }
        #expect(
            removals == ["changed", "left 1", "none"] && !machine.isScheduled && machine.update(loop) == nil)
    }

    @Test func `a loop that is not up to date delivers only in the stream's modes`() {
        var machine = opened()
        let elsewhere = machine.serve(after: poll, isReady: false) { _ in false }
        #expect(elsewhere == .none && serve(&machine) == .deliver(.openCompleted))
    }

    @Test(arguments: [Stream.Event.hasBytesAvailable, .hasSpaceAvailable])
    func `transfers are refused unless the stream is open`(event: Stream.Event) {
        var machine = StreamMachine(event)
        #expect(machine.begin(count: 1, after: poll) == .refused(-1))
        _ = machine.open()
        #expect(machine.begin(count: 1, after: poll) == .opening)
        machine.opened(.backend, isAtEnd: false)
        #expect(machine.begin(count: 0, after: poll) == .refused(0))
        machine.reachEnd()
        #expect(machine.begin(count: 1, after: poll) == .refused(0))
        _ = machine.close()
        #expect(machine.begin(count: 1, after: poll) == .refused(-1))
    }

    @Test func `a transfer that ends after the closing does not reopen the stream`() {
        var machine = opened()
        _ = machine.begin(count: 1, after: poll)
        _ = machine.close()
        machine.finishTransfer(Transfer(count: 1))
        #expect(machine.status == .closed)
    }

    @Test func `a stream belongs to one hand-off until it is closed`() {
        var machine = opened()
        let (first, second) = (machine.handOver(), machine.handOver())
        _ = machine.close()
        let third = machine.handOver()
        #expect(first && !second && third)
    }

    @Test func `a callback whose queue the stream has left delivers nothing`() {
        var machine = StreamMachine(.hasBytesAvailable)
        _ = machine.open()
        machine.opened(.kernel, isAtEnd: false)
        for _ in 0..<2 {
            machine.unscheduleEverywhere()
            _ = machine.schedule(on: loop, .default, common: ModeSet(.default))
            machine.joinQueue()
        }
        let stale = machine.beginCallback()
        let isEnqueued = machine.takeLoopsToUpdate().isForQueue
        let current = machine.beginCallback()
        #expect(stale == .none && isEnqueued && current == .deliver(.openCompleted))
    }
}

#endif
