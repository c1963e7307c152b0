import SystemPackage
import Testing

@testable import Reactor

/// What single inputs do. ``StreamMachineModelTests`` has their combinations.
@Suite struct StreamMachineTests {
    private func opened(_ event: Stream.Event = .hasBytesAvailable) -> StreamMachine {
        var machine = StreamMachine(event)
        _ = machine.open()
        machine.opened(.kernel, isAtEnd: false)
        return machine
    }

    /// Everything that a turn delivers.
    private func deliver(_ machine: inout StreamMachine) -> [Stream.Event] {
        var (action, events) = (machine.turn(isOnQueue: false), [Stream.Event]())
        while case .deliver(let event) = action {
            events.append(event)
            action = machine.delivered(event, toDelegate: true, goesOn: true)
        }
        return events
    }

    private func transfer(_ machine: inout StreamMachine) {
        #expect(machine.begin(count: 1, isOnQueue: false) == .begun)
        machine.move(Transfer(count: 1))
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

    @Test func `opening that was overtaken by closing stays closed`() {
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
        machine.fail(Errno.noSuchFileOrDirectory)
        #expect(deliver(&machine) == [.errorOccurred])
    }

    @Test func `an end replaces bytes that are pending`() {
        var machine = opened()
        #expect(machine.becomeReady() == .none)
        machine.reachEnd()
        #expect(deliver(&machine) == [.openCompleted, .endEncountered] && machine.status == .atEnd)
    }

    @Test func `events of a turn are delivered in the order of their bits`() {
        var machine = opened()
        #expect(machine.becomeReady() == .none)
        #expect(deliver(&machine) == [.openCompleted, .hasBytesAvailable])
        #expect(deliver(&machine) == [])
    }

    @Test func `a delivered event is delivered again after an answer`() {
        var machine = opened()
        #expect(machine.becomeReady() == .none)
        _ = deliver(&machine)
        #expect(machine.becomeReady() == .disarm && machine.pending.isEmpty)
        transfer(&machine)
        #expect(machine.becomeReady(since: machine.transfers) == .none)
        #expect(deliver(&machine) == [.hasBytesAvailable])
    }

    @Test func `a transfer makes a pending event void`() {
        var machine = opened()
        _ = deliver(&machine)
        #expect(machine.becomeReady() == .none && machine.pending == .hasBytesAvailable)
        #expect(machine.begin(count: 1, isOnQueue: false) == .begun)
        #expect(machine.pending.isEmpty && machine.status == .reading)
        machine.move(Transfer(count: 1))
        #expect(machine.status == .open)
    }

    @Test
    func `a report is asked for again after a transfer outside the callback, and dropped after another`() {
        var machine = opened()
        _ = deliver(&machine)
        transfer(&machine)
        #expect(machine.becomeReady() == .askKernel(since: 1))
        transfer(&machine)
        #expect(machine.becomeReady(since: 1) == .none && machine.pending.isEmpty)
    }

    @Test func `room is checked before it is delivered, and withdrawn if there is none`() {
        var machine = StreamMachine(.hasSpaceAvailable)
        _ = machine.open()
        machine.opened(.kernelWhenFull, isAtEnd: false)
        _ = deliver(&machine)
        machine.answer(.waiting, since: 0)
        #expect(machine.turn(isOnQueue: false) == .checkRoom(since: 0))
        machine.checked(.full, since: 0)
        #expect(machine.pending.isEmpty && machine.needsWatch(isDisarmed: false))
        #expect(machine.becomeReady() == .none && machine.turn(isOnQueue: false) == .checkRoom(since: 0))
        machine.checked(.found, since: 0)
        #expect(deliver(&machine) == [.hasSpaceAvailable])
    }

    @Test(arguments: [Stream.Event.hasBytesAvailable, .hasSpaceAvailable])
    func `transfers are refused unless the stream is open`(event: Stream.Event) {
        var machine = StreamMachine(event)
        #expect(machine.begin(count: 1, isOnQueue: false) == .refused(-1))
        _ = machine.open()
        #expect(machine.begin(count: 1, isOnQueue: false) == .opening)
        machine.opened(.backend, isAtEnd: false)
        #expect(machine.begin(count: 0, isOnQueue: false) == .refused(0))
        machine.reachEnd()
        #expect(machine.begin(count: 1, isOnQueue: false) == .refused(0))
        _ = machine.close()
        #expect(machine.begin(count: 1, isOnQueue: false) == .refused(-1))
    }

    @Test func `a transfer that was overtaken by closing does not open the stream again`() {
        var machine = opened()
        _ = machine.begin(count: 1, isOnQueue: false)
        _ = machine.close()
        machine.move(Transfer(count: 1))
        #expect(machine.status == .closed)
    }

    @Test func `a stream belongs to one hand-off until it is closed`() {
        var machine = opened()
        let (first, second) = (machine.handOver(), machine.handOver())
        _ = machine.close()
        let third = machine.handOver()
        #expect(first && !second && third)
    }
}
