import SystemPackage
import Testing

@testable import Reactor

@Suite struct StreamMachineTests {
    private func opened() -> StreamMachine {
        var machine = StreamMachine()
        _ = machine.beginOpening()
        machine.opened()
        return machine
    }

    /// Everything that is raised, told at once.
    private func tell(_ machine: inout StreamMachine) -> [Stream.Event] {
        var told: [Stream.Event] = []
        let events = machine.raised
        while let event = machine.nextToTell(of: events) { told.append(event) }
        return told
    }

    @Test func `a stream is opened once`() {
        var machine = StreamMachine()
        #expect(machine.status == .notOpen)
        let first = machine.beginOpening()
        #expect(first && machine.status == .opening)
        machine.opened()
        #expect(machine.status == .open)
        let second = machine.beginOpening()
        #expect(!second)
    }

    @Test func `a stream that was never opened is not closed`() {
        var machine = StreamMachine()
        let closed = machine.close()
        #expect(!closed && machine.status == .notOpen && !machine.isReleased)
    }

    @Test func `closing releases once, and for good`() {
        var machine = opened()
        let first = machine.close()
        let second = machine.close()
        #expect(first && !second && machine.status == .closed)
        let reopened = machine.beginOpening()
        #expect(!reopened && machine.status == .closed)
    }

    @Test func `opening that was overtaken by closing stays closed`() {
        var machine = StreamMachine()
        _ = machine.beginOpening()
        _ = machine.close()
        machine.opened()
        machine.failUnlessReleased(Errno.ioError)
        #expect(machine.status == .closed && machine.raised.isEmpty)
    }

    @Test func `an error outlives the closing, which still releases once`() {
        var machine = opened()
        machine.fail(Errno.ioError)
        let first = machine.close()
        let second = machine.close()
        #expect(first && !second)
        #expect(machine.status == .error && machine.error as? Errno == .ioError && machine.raised.isEmpty)
    }

    @Test func `the first error stays`() {
        var machine = opened()
        machine.fail(Errno.ioError)
        machine.fail(Errno.noSpace)
        #expect(machine.error as? Errno == .ioError)
    }

    @Test func `a closed stream may still fail, and tells nobody`() {
        var machine = opened()
        _ = machine.close()
        machine.fail(Errno.noSpace)
        #expect(machine.status == .error && machine.error as? Errno == .noSpace && machine.raised.isEmpty)
    }

    @Test func `an error at opening is all that is told`() {
        var machine = StreamMachine()
        _ = machine.beginOpening()
        machine.fail(Errno.noSuchFileOrDirectory)
        #expect(tell(&machine) == [.errorOccurred])
    }

    @Test func `a fault replaces what has not been told, and nothing follows it`() {
        var machine = opened()
        machine.raise(.hasBytesAvailable)
        machine.fail(Errno.ioError)
        #expect(tell(&machine) == [.errorOccurred])
        machine.raise(.hasBytesAvailable)
        machine.reachEnd()
        #expect(tell(&machine).isEmpty)
    }

    @Test func `the end is told once, and only a fault may follow`() {
        var machine = opened()
        _ = tell(&machine)
        machine.reachEnd()
        machine.reachEnd()
        machine.raise(.hasBytesAvailable)
        #expect(machine.status == .atEnd)
        #expect(tell(&machine) == [.endEncountered])
        machine.forgetTold()
        machine.reachEnd()
        #expect(tell(&machine).isEmpty)
        machine.fail(Errno.ioError)
        #expect(tell(&machine) == [.errorOccurred])
    }

    @Test func `an end replaces bytes that have not been told of`() {
        var machine = opened()
        machine.raise(.hasBytesAvailable)
        machine.reachEnd()
        #expect(tell(&machine) == [.openCompleted, .endEncountered])
    }

    @Test func `an event is pending once`() {
        var machine = opened()
        machine.raise(.hasBytesAvailable)
        machine.raise(.hasBytesAvailable)
        #expect(tell(&machine) == [.openCompleted, .hasBytesAvailable])
        #expect(tell(&machine).isEmpty)
    }

    @Test func `what was told is told again after an answer`() {
        var machine = opened()
        machine.raise(.hasSpaceAvailable)
        _ = tell(&machine)
        machine.raise(.hasSpaceAvailable)
        #expect(machine.raised.isEmpty)
        machine.begin(.writing, answering: .hasSpaceAvailable)
        machine.finish(answering: .hasSpaceAvailable)
        machine.raise(.hasSpaceAvailable)
        #expect(tell(&machine) == [.hasSpaceAvailable])
    }

    @Test func `a read makes an event that waits unnecessary`() {
        var machine = opened()
        _ = tell(&machine)
        machine.raise(.hasBytesAvailable)
        machine.begin(.reading, answering: .hasBytesAvailable)
        #expect(machine.raised.isEmpty && machine.status == .reading)
        machine.raise(.hasBytesAvailable)
        machine.finish(answering: .hasBytesAvailable)
        #expect(machine.raised.isEmpty && machine.status == .open)
    }

    @Test func `what was found out before a read is not raised after it`() {
        var machine = opened()
        _ = tell(&machine)
        let transfers = machine.transfers
        machine.begin(.reading, answering: .hasBytesAvailable)
        machine.finish(answering: .hasBytesAvailable)
        machine.raise(.hasBytesAvailable, unlessMovedSince: transfers)
        #expect(machine.raised.isEmpty)
        machine.raise(.hasBytesAvailable, unlessMovedSince: machine.transfers)
        #expect(machine.raised == .hasBytesAvailable)
    }

    @Test func `forgetting what was told lets it be told again, but not the opening`() {
        var machine = opened()
        machine.raise(.hasBytesAvailable)
        _ = tell(&machine)
        machine.forgetTold()
        machine.raise(.hasBytesAvailable)
        #expect(tell(&machine) == [.hasBytesAvailable])
    }

    @Test func `only the wanted events are told, in the order of their bits`() {
        var machine = opened()
        machine.raise(.hasBytesAvailable)
        let first = machine.nextToTell(of: [.hasBytesAvailable, .openCompleted])
        let second = machine.nextToTell(of: .openCompleted)
        let third = machine.nextToTell(of: .hasBytesAvailable)
        #expect(first == .openCompleted && second == nil && third == .hasBytesAvailable)
    }

    @Test func `nothing is raised before opening or after closing`() {
        var machine = StreamMachine()
        machine.raise(.hasBytesAvailable)
        #expect(machine.raised.isEmpty)
        machine = opened()
        _ = machine.close()
        machine.raise(.hasBytesAvailable)
        #expect(machine.raised.isEmpty && machine.unanswered.isEmpty)
    }

    @Test func `a read that was overtaken by closing or a fault does not open the stream again`() {
        var machine = opened()
        machine.begin(.reading, answering: .hasBytesAvailable)
        _ = machine.close()
        machine.finish(answering: .hasBytesAvailable)
        #expect(machine.status == .closed)
    }
}
