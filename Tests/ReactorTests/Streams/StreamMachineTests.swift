#if DEBUG

import SystemPackage
import ReactorTesting
import Testing

@testable import Reactor

/// Errors and ends; ``StreamMachineModelTests`` has the combinations of all inputs.
@Suite(.runLoop) struct StreamMachineTests {
    /// An open machine, scheduled on a loop.
    private var machine: StreamMachine = {
        var machine = StreamMachine(.hasBytesAvailable)
        _ = machine.open()
        machine.opened(.kernel, isAtEnd: false)
        _ = machine.schedule(on: LoopIdentity(number: 1), .default, common: ModeSet(.default))
        return machine
    }()

    @Test mutating func `the first error stays, and a closed stream fails only if accepted bytes are lost`() {
        var failed = machine
        failed.fail(Errno.ioError)
        failed.fail(Errno.noSpace)
        #expect(failed.error as? Errno == .ioError)
        _ = machine.close()
        machine.fail(Errno.ioError)
        #expect(machine.error == nil)
        machine.loseBytes(Errno.noSpace)
        #expect(machine.status == .error && machine.error as? Errno == .noSpace && machine.pending.isEmpty)
    }

    @Test mutating func `an end replaces bytes that are pending`() {
        let loop = LoopIdentity(number: 1)
        let first = machine.serve(on: loop, .made(Poll(loop: loop, count: 1))) { _ in true }
        #expect(first == .deliver(.openCompleted) && machine.pending == .hasBytesAvailable)
        machine.reachEnd()
        let none = machine.delivered(.openCompleted, toDelegate: true, mayContinue: true)
        let end = machine.serve(on: loop, .none) { _ in true }
        #expect(none == .none && end == .deliver(.endEncountered) && machine.status == .atEnd)
    }
}

#endif
