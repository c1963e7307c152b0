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

    @Test func `the first error stays, and a closed stream fails only if accepted bytes are lost`() {
        var machine = opened()
        machine.fail(Errno.ioError)
        machine.fail(Errno.noSpace)
        #expect(machine.error as? Errno == .ioError)
        machine = opened()
        _ = machine.close()
        machine.fail(Errno.ioError)
        #expect(machine.error == nil)
        machine.loseBytes(Errno.noSpace)
        #expect(machine.status == .error && machine.error as? Errno == .noSpace && machine.pending.isEmpty)
    }

    @Test func `an end replaces bytes that are pending`() {
        var machine = opened()
        let action = serve(&machine, isReady: true)
        #expect(action == .deliver(.openCompleted) && machine.pending == .hasBytesAvailable)
        machine.reachEnd()
        let next = machine.delivered(.openCompleted, toDelegate: true, mayContinue: true)
        #expect(next == .none && deliver(&machine) == [.endEncountered] && machine.status == .atEnd)
    }

    @Test func `after a transfer outside the callback the kernel is asked, and ignored after another one`() {
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
        #expect(machine.next == .update)
        let (first, second) = (machine.requestUpdate(), machine.requestUpdate())
        let update = machine.update(loop)
        #expect(first && !second && update?.isWatched == true && update?.isSignalled == true)
        #expect(machine.next == .signal)
        _ = deliver(&machine)
        #expect(machine.next == .none)
    }

    @Test func `a callback whose queue the stream has left delivers nothing`() {
        var machine = StreamMachine(.hasBytesAvailable)
        _ = machine.open()
        machine.opened(.kernel, isAtEnd: false)
        for _ in 0..<2 {
            machine.detach()
            _ = machine.schedule(on: loop, .default, common: ModeSet(.default))
            machine.joinQueue()
        }
        let stale = machine.beginCallback()
        let isEnqueued = machine.takeUpdate().isForQueue
        let current = machine.beginCallback()
        #expect(stale == .none && isEnqueued && current == .deliver(.openCompleted))
    }
}

#endif
