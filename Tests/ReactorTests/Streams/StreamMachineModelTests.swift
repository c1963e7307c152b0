#if DEBUG

import SystemPackage
import ReactorTestSupport
import ReactorTesting
import Testing

@testable import Reactor

/// Visits the states that a stream's machine can reach, with every input in each of them.
@Suite(.runLoop(timeLimit: .seconds(60))) struct StreamMachineModelTests {
    /// A tenth of all states.
    private static let stateLimit = Depth.of(full: .max, quick: 6000)

    @Test(arguments: ["bytes of memory", "bytes of a connection", "space in memory", "space of a connection"])
    func `in every state events are delivered once, in order, and to a delegate`(stream: String) {
        let first: Model =
            switch stream {
            case "bytes of memory": Model(.hasBytesAvailable, .backend)
            case "bytes of a connection": Model(.hasBytesAvailable, .kernel, isHeld: true)
            case "space in memory": Model(.hasSpaceAvailable, .backend)
            default: Model(.hasSpaceAvailable, .kernelWhenFull, isHeld: true)
            }
        var (models, known) = ([first], Set([first.key]))
        var visited = 0
        // The nearest states come first.
        while visited < min(models.count, Self.stateLimit) {
            let model = models[visited]
            visited += 1
            for input in Model.Input.allCases {
                var next = model
                guard next.take(input) else { continue }
                next.update()
                guard known.insert(next.key).inserted else { continue }
                next.checkProgress()
                if let problem = next.problem {
                    Issue.record("\(problem) after \(input) in \(model)")
                    return
                }
                models.append(next)
            }
        }
        #expect(known.count > 200)
    }
}

/// A machine, and the actions of its engine, its client and the kernel.
struct Model {
    enum Input: CaseIterable {
        case open, opened, openedAtEnd, failed, bytesLost, closed, ended, shutDown
        case begin, moved, movedToEnd, movedAndFull, movedAndAwaiting
        case kernelReports, kernelReportsLate, roomFound, roomFull, roomAwaited
        case backendWaits, backendIsReady, backendIsAtEnd
        case loopServes, otherLoopServes, callbackReturns, callbackReturnsElsewhere, queueCalls
        case delegateSet, delegateReplaced, delegateRemoved, scheduled, movedToOtherLoop, unscheduled,
            queueSet
        case watchRefused
    }

    /// The first violated rule.
    private(set) var problem: String?

    /// The loop that the stream was scheduled on last, and the other one.
    private var loops = (LoopIdentity(number: 1), LoopIdentity(number: 2))
    private var poll: Poll { Poll(loop: loops.0, count: 1) }
    private var nextPoll: Poll { Poll(loop: loops.0, count: 2) }
    private static let common = ModeSet(.default)

    private var machine: StreamMachine
    private let readinessSource: ReadinessSource
    /// Whether the events wait for a turn after the opening.
    private let isHeld: Bool
    private var hasDelegate = false
    /// Whether the loop has the kernel watch the descriptor.
    private var isWatched = false
    private var isMoving = false
    private var isEnqueued = false
    private var isTurnEnqueued = false
    /// The event for which the delegate is being called, whether there is one, and whether the event has been
    /// overtaken.
    private var callback: (event: Stream.Event, hasDelegate: Bool, isVoid: Bool)?
    /// What the backend knows about room when it is asked.
    private var room = Room.found
    private var delivered: Stream.Event = []
    private var isAwaitingBackend = false
    private var isRoomKnown = false

    init(_ event: Stream.Event, _ readinessSource: ReadinessSource, isHeld: Bool = false) {
        machine = StreamMachine(event)
        (self.readinessSource, self.isHeld) = (readinessSource, isHeld)
    }

    /// Identifies a state in one word.
    var key: UInt64 {
        var key: UInt64 = 0
        func add(_ value: UInt, bits: UInt64) { key = key << bits | UInt64(value) }
        func add(_ flag: Bool) { add(flag ? 1 : 0, bits: 1) }
        add(machine.status.rawValue, bits: 3)
        add(UInt(machine.room.index), bits: 2)
        add(UInt(machine.delivery.index), bits: 2)
        add(UInt(machine.delegateState.index), bits: 2)
        add(UInt(machine.pendingBits), bits: 5)
        add(UInt(machine.batchBits), bits: 5)
        add(delivered.rawValue, bits: 5)
        add(callback?.event.rawValue ?? 0, bits: 5)
        let loopSchedule = machine.loopSchedule
        for flag in [
            machine.readinessSource == .unannounced, machine.isClosed, machine.isUnacknowledged,
            machine.lastTransfer == .none, machine.lastTransfer == .unknown, machine.lastTransfer == poll,
            machine.isOnQueue, loopSchedule != nil, loopSchedule?.isWatched == true,
            loopSchedule?.isDisarmed == true, loopSchedule?.isUpToDate == true, loops.0.number == 1,
            hasDelegate,
            isMoving, isEnqueued,
            isTurnEnqueued, isAwaitingBackend, isRoomKnown, callback?.hasDelegate == true,
            callback?.isVoid == true,
        ] { add(flag) }
        add(UInt(room.index), bits: 2)
        return key
    }

    /// Returns false if that cannot happen now.
    mutating func take(_ input: Input) -> Bool {
        switch input {
        case .open:
            guard machine.open() else { return false }
            if isHeld { machine.hold(awaitsPass: true) }
        case .opened, .openedAtEnd: return open(isAtEnd: input == .openedAtEnd)
        case .failed: machine.fail(Errno.ioError)
        case .bytesLost: machine.loseBytes(Errno.ioError)
        case .closed: return close()
        case .ended: machine.reachEnd()
        case .shutDown: machine.shutDown()
        case .begin: return begin()
        case .moved: return finishTransfer(Transfer(count: 1))
        case .movedToEnd: return finishTransfer(Transfer(count: 0, isAtEnd: true))
        case .movedAndFull: return finishTransfer(Transfer(count: 1, room: .full))
        case .movedAndAwaiting: return finishTransfer(Transfer(count: 1, room: .awaited))
        case .kernelReports: return serve(.made(nextPoll))
        case .kernelReportsLate: return serve(.made(poll))
        case .roomFound: room = .found
        case .roomFull: room = .full
        case .roomAwaited: room = .awaited
        case .backendWaits: machine.note(.waiting)
        case .backendIsReady:
            machine.note(.ready)
            (isRoomKnown, isAwaitingBackend) = (true, false)
        case .backendIsAtEnd: machine.note(.atEnd)
        case .loopServes: return serve(.none)
        case .otherLoopServes:
            let action = machine.serve(on: loops.1, .confirmed) { _ in true }
            check(action == .none, "a loop that the stream is not on serves it")
        case .callbackReturns: return endCallback(mayContinue: true)
        case .callbackReturnsElsewhere: return endCallback(mayContinue: false)
        case .queueCalls: return isTurnEnqueued ? passCompleted() : startCallback()
        case .delegateSet, .delegateReplaced: setDelegate(isOther: input == .delegateReplaced || !hasDelegate)
        case .delegateRemoved: hasDelegate = false
        case .scheduled: schedule(onQueue: false)
        case .movedToOtherLoop:
            guard machine.isScheduled, !machine.isOnQueue else { return false }
            move()
        case .unscheduled: unschedule()
        case .queueSet: schedule(onQueue: true)
        case .watchRefused:
            guard isWatched else { return false }
            isWatched = false
            machine.failWatching(on: loops.0, Errno.noMemory)
        }
        return true
    }

    /// An open stream has something to deliver, or waits for the delegate, the backend or the kernel.
    mutating func checkProgress() {
        guard !isMoving, callback == nil, !isEnqueued, machine.isScheduled else { return }
        check(!machine.mustDeliver || machine.next != .none, "an event is left")
        var machine = machine
        machine.note(.waiting)
        _ = machine.update(loops.0)
        let waits = machine.needsWatch(isDisarmed: false) || readinessSource == .backend || isAwaitingBackend
        let turns = machine.delivery == .held
        check(
            machine.mustDeliver || !machine.isAcknowledged || !machine.isOpen || waits || turns,
            "nothing goes on")
    }
}

extension Model {
    private mutating func check(_ condition: Bool, _ problem: String) {
        if !condition { self.problem = self.problem ?? problem }
    }

    private mutating func open(isAtEnd: Bool) -> Bool {
        guard machine.status == .opening else { return false }
        machine.opened(isHeld ? .unannounced : readinessSource, isAtEnd: isAtEnd)
        return true
    }

    private mutating func close() -> Bool {
        guard machine.status != .notOpen else { return false }
        let isFirst = !machine.isClosed
        let isReleased = machine.close()
        check(isReleased == isFirst, "released twice, or not at all")
        unschedule()
        check(machine.pending.isEmpty, "an event is pending after the closing")
        return true
    }

    private mutating func begin() -> Bool {
        guard !isMoving, machine.begin(count: 1) == .begun else { return false }
        isMoving = true
        forgetAcknowledgement()
        return true
    }

    private mutating func finishTransfer(_ transfer: Transfer) -> Bool {
        guard isMoving else { return false }
        isMoving = false
        isRoomKnown = false
        isAwaitingBackend = transfer.room == .awaited
        machine.finishTransfer(transfer, after: poll)
        check(!transfer.isAtEnd || !machine.isOpen, "open at its end")
        return true
    }

    private mutating func serve(_ report: StreamMachine.Report) -> Bool {
        guard machine.isScheduled else { return false }
        let action = machine.serve(on: loops.0, report) { $0.contains(.default, common: Self.common) }
        switch action {
        case .confirm:
            check(machine.lastTransfer != .none, "a first report is doubted")
            return serve(.confirmed)
        case .checkRoom:
            (isRoomKnown, isAwaitingBackend) = (room == .found, room == .awaited)
            perform(machine.checked(room))
        default: perform(action)
        }
        return true
    }

    private mutating func perform(_ action: StreamMachine.Action) {
        switch action {
        case .none, .signal, .update: break
        case .disarm: isWatched = false
        case .confirm, .checkRoom, .fail: check(false, "a question where there is no answer")
        case .enqueue:
            check(machine.isOnQueue && !isEnqueued && callback == nil, "a needless callback on the queue")
            isEnqueued = true
        case .passCompleted: machine.release()
        case .deliver(let event): beginCallback(event)
        }
    }

    private mutating func passCompleted() -> Bool {
        isTurnEnqueued = false
        machine.release()
        return true
    }

    private mutating func startCallback() -> Bool {
        guard isEnqueued else { return false }
        isEnqueued = false
        perform(machine.beginCallback())
        return true
    }

    private mutating func beginCallback(_ event: Stream.Event) {
        check(callback == nil, "a callback inside another")
        check(!machine.isClosed, "an event after the closing")
        check(machine.delivery == .underway, "an event that is held")
        check(!delivered.contains(event), "an event twice")
        check(!delivered.contains(.errorOccurred), "an event after an error")
        check(!delivered.contains(.endEncountered) || event == .errorOccurred, "after the end")
        if event != .openCompleted, event != .errorOccurred {
            check(delivered.contains(.openCompleted), "an event before the opening")
        }
        if event == machine.event, readinessSource == .kernelWhenFull { check(isRoomKnown, "unchecked room") }
        callback = (event, hasDelegate, false)
        if hasDelegate { delivered.insert(event) }
    }

    private mutating func endCallback(mayContinue: Bool) -> Bool {
        guard let (event, hasDelegate, isAcknowledged) = callback else { return false }
        callback = nil
        let isVoid = isAcknowledged || event == machine.event && !machine.isOpen
        let isError = machine.status == .error && event != .errorOccurred
        let action = machine.delivered(
            event, toDelegate: hasDelegate, mayContinue: mayContinue && machine.isScheduled)
        let isKept = machine.isClosed || isVoid || isError || machine.pending.contains(event)
        check(hasDelegate || isKept, "an event without a delegate is lost")
        perform(action)
        return true
    }

    private mutating func setDelegate(isOther: Bool) {
        hasDelegate = true
        if machine.setDelegate(isOther: isOther) { forgetAcknowledgement() }
    }

    private mutating func schedule(onQueue: Bool) {
        guard !machine.isClosed else { return }
        if onQueue || machine.isOnQueue { unschedule() }
        if !machine.isScheduled { forgetAcknowledgement() }
        let isScheduled = machine.schedule(on: loops.0, .default, common: Self.common)
        check(isScheduled, "an open stream is refused")
        if onQueue { machine.joinQueue() }
    }

    /// Takes the stream, with its pending events, to the other loop.
    private mutating func move() {
        let (pending, former) = (machine.pending, loops.0)
        loops = (loops.1, loops.0)
        let isScheduled = machine.schedule(on: loops.0, .default, common: Self.common)
        check(isScheduled == !machine.isClosed, "an open stream is refused, or a closed one is not")
        check(!machine.isScheduled(on: former), "the former loop is not left")
        check(machine.pending == pending, "an event is lost on the way to another loop")
        isWatched = false
        forgetAcknowledgement()
    }

    /// Performs ``StreamMachine/Action/update``, as the engine does after every change.
    mutating func update() {
        check(!machine.isClosed || [.closed, .error].contains(machine.status), "closed, and open again")
        changeReadinessSource()
        let (isForLoop, isForQueue) = machine.takeUpdate()
        if isForQueue, machine.delivery == .held {
            isTurnEnqueued = true
        } else if isForQueue {
            perform(.enqueue)
        }
        if isForLoop {
            guard let update = machine.update(loops.0) else {
                return check(false, "an unknown loop is behind")
            }
            isWatched = update.isWatched
            check(
                update.isSignalled == (machine.mustDeliver || machine.mustReportPass),
                "the loop is raised for nothing, or not for an event")
        }
        let isBehind = machine.loopSchedule.map { $0.isWatched != isWatched } ?? false
        check(!isBehind, "the loop watches what it should not, or does not what it should")
    }

    /// Asks the backend, as the engine does after openCompleted.
    private mutating func changeReadinessSource() {
        guard machine.mustChangeReadinessSource else { return }
        let isDue = machine.mayDeliver
        check(!isDue || machine.mustAskBackend, "the backend is not asked after the opening")
        machine.changeReadinessSource(readinessSource)
        isRoomKnown = false
        forgetAcknowledgement()
    }

    /// The transfer event may be delivered once more, and the current callback's event is overtaken.
    private mutating func forgetAcknowledgement() {
        delivered.subtract(machine.event)
        if callback?.event == machine.event { callback?.isVoid = true }
    }

    private mutating func unschedule() {
        machine.detach()
        (isWatched, isEnqueued, isTurnEnqueued) = (false, false, false)
    }
}

// The numbers of cases without a payload, in a byte.

extension Room {
    fileprivate var index: UInt8 { unsafe unsafeBitCast(self, to: UInt8.self) }
}

extension StreamMachine.Delivery {
    fileprivate var index: UInt8 { unsafe unsafeBitCast(self, to: UInt8.self) }
}

extension StreamMachine.DelegateState {
    fileprivate var index: UInt8 { unsafe unsafeBitCast(self, to: UInt8.self) }
}

#endif
