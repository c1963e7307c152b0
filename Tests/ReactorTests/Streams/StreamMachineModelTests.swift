import SystemPackage
import Testing

@testable import Reactor

/// Visits every state that a stream's machine can come to, with every input in each of them.
@Suite struct StreamMachineModelTests {
    @Test(arguments: [Stream.Event.hasBytesAvailable, .hasSpaceAvailable], Model.readyings)
    func `in every state, whatever happens, events are delivered once, in order, and to a delegate`(
        event: Stream.Event, readying: String
    ) {
        let first = Model(
            event, readying == "backend" ? .backend : readying == "kernel" ? .kernel : .kernelWhenFull)
        var (waiting, known) = ([first], Set([first.key]))
        while let model = waiting.popLast() {
            for input in Model.Input.allCases {
                var next = model
                guard next.take(input), known.insert(next.key).inserted else { continue }
                next.checkProgress()
                if let problem = next.problem {
                    Issue.record("\(problem) after \(input) in \(model)")
                    return
                }
                waiting.append(next)
            }
        }
        #expect(known.count > 200)
    }
}

/// A machine, and what its engine, its client and the kernel do around it.
struct Model {
    static let readyings = ["backend", "kernel", "kernel when full"]

    enum Input: CaseIterable {
        case open, opened, openedAtEnd, failed, bytesLost, closed, ended, shutDown
        case begin, moved, movedToEnd, movedAndFull, movedAndAwaiting
        case kernelReports, kernelConfirms, roomFound, roomFull, roomAwaited
        case backendWaits, backendIsReady, backendIsAtEnd
        case loopTurns, callbackReturns, callbackReturnsElsewhere, queueTurns
        case delegateSet, delegateReplaced, delegateRemoved, scheduled, unscheduled, queueSet
    }

    private enum Question { case kernel, room }

    /// What should not have happened.
    private(set) var problem: String?

    private var machine: StreamMachine
    private let readying: Readying
    private var hasDelegate = false
    private var isScheduled = false
    private var isOnQueue = false
    private var isMoving = false
    private var isEnqueued = false
    /// The event for which the delegate is being called, whether there is one, and whether the event is void by now.
    private var callback: (event: Stream.Event, hasDelegate: Bool, isVoid: Bool)?
    private var question: (kind: Question, since: UInt64)?
    private var delivered: Stream.Event = []
    private var isAwaitingBackend = false
    private var isRoomKnown = false

    init(_ event: Stream.Event, _ readying: Readying) {
        machine = StreamMachine(event)
        self.readying = readying
    }

    /// What tells one state from another: of the count of transfers it only matters whether there have been more since a
    /// question was asked.
    struct Key: Hashable {
        let status: Stream.Status
        let room: Room
        let delivery: StreamMachine.Delivery
        let audience: StreamMachine.Audience
        let bits: [UInt8]
        let flags: [Bool]
    }

    var key: Key {
        let flags = [
            machine.isClosed, machine.isUnanswered, machine.isReportDoubtful, hasDelegate, isScheduled,
            isOnQueue,
            isMoving, isEnqueued, isAwaitingBackend, isRoomKnown, callback?.hasDelegate ?? false,
            callback?.isVoid ?? false, question?.kind == .room, question?.since == machine.transfers,
        ]
        let callback = UInt8(self.callback?.event.rawValue ?? 0)
        return Key(
            status: machine.status, room: machine.room, delivery: machine.delivery,
            audience: machine.audience,
            bits: [
                machine.pendingBits, machine.turnBits, UInt8(delivered.rawValue), callback,
                question == nil ? 0 : 1,
            ],
            flags: flags)
    }

    /// False if that cannot happen now.
    mutating func take(_ input: Input) -> Bool {
        switch input {
        case .open: return machine.open()
        case .opened, .openedAtEnd: return open(isAtEnd: input == .openedAtEnd)
        case .failed: machine.fail(Errno.ioError)
        case .bytesLost: machine.loseBytes(Errno.ioError)
        case .closed: return close()
        case .ended: machine.reachEnd()
        case .shutDown: machine.shutDown()
        case .begin: return begin()
        case .moved: return move(Transfer(count: 1))
        case .movedToEnd: return move(Transfer(count: 0, isAtEnd: true))
        case .movedAndFull: return move(Transfer(count: 1, room: .full))
        case .movedAndAwaiting: return move(Transfer(count: 1, room: .awaited))
        case .kernelReports: return turn(isReady: true)
        case .kernelConfirms: return answerKernel()
        case .roomFound: return answer(.found)
        case .roomFull: return answer(.full)
        case .roomAwaited: return answer(.awaited)
        case .backendWaits: machine.answer(.waiting, since: machine.transfers)
        case .backendIsReady:
            machine.answer(.ready, since: machine.transfers)
            (isRoomKnown, isAwaitingBackend) = (true, false)
        case .backendIsAtEnd: machine.answer(.atEnd, since: machine.transfers)
        case .loopTurns: return turn(isReady: false)
        case .callbackReturns: return endCallback(goesOn: true)
        case .callbackReturnsElsewhere: return endCallback(goesOn: false)
        case .queueTurns: return turnQueue()
        case .delegateSet, .delegateReplaced: setDelegate(isOther: input == .delegateReplaced || !hasDelegate)
        case .delegateRemoved: hasDelegate = false
        case .scheduled: schedule(onQueue: false)
        case .unscheduled: unschedule()
        case .queueSet: schedule(onQueue: true)
        }
        return true
    }

    /// An open stream has something to deliver, or waits for the delegate, the backend or the kernel.
    mutating func checkProgress() {
        guard !isMoving, callback == nil, !isEnqueued, question == nil, isScheduled else { return }
        var machine = machine
        machine.answer(.waiting, since: machine.transfers)
        let waits = machine.needsWatch(isDisarmed: false) || readying == .backend || isAwaitingBackend
        check(machine.mustDeliver || !machine.isAnswered || !machine.isOpen || waits, "nothing goes on")
        check(!machine.mustDeliver || machine.next(isScheduled: true) != .none, "an event is left")
    }
}

extension Model {
    private mutating func check(_ condition: Bool, _ problem: String) {
        if !condition { self.problem = self.problem ?? problem }
    }

    private mutating func open(isAtEnd: Bool) -> Bool {
        guard machine.status == .opening else { return false }
        machine.opened(readying, isAtEnd: isAtEnd)
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
        guard !isMoving, machine.begin(count: 1, isOnQueue: isOnQueue) == .begun else { return false }
        isMoving = true
        forgetAnswer()
        return true
    }

    private mutating func move(_ transfer: Transfer) -> Bool {
        guard isMoving else { return false }
        isMoving = false
        isRoomKnown = false
        isAwaitingBackend = transfer.room == .awaited
        machine.move(transfer)
        check(!transfer.isAtEnd || !machine.isOpen, "open at its end")
        return true
    }

    private mutating func turn(isReady: Bool, since: UInt64? = nil) -> Bool {
        guard isScheduled, question == nil else { return false }
        var action = isReady ? machine.becomeReady(since: since) : .none
        if action == .none, machine.canDeliver { action = machine.turn(isOnQueue: isOnQueue) }
        perform(action)
        return true
    }

    private mutating func perform(_ action: StreamMachine.Action) {
        switch action {
        case .none, .disarm, .askBackend, .updateLoops: break
        case .askKernel(let since): question = (.kernel, since)
        case .checkRoom(let since): question = (.room, since)
        case .enqueue:
            check(isOnQueue && !isEnqueued && callback == nil, "a needless callback on the queue")
            isEnqueued = true
        case .deliver(let event): beginCallback(event)
        }
    }

    private mutating func answerKernel() -> Bool {
        guard let (kind, since) = question, kind == .kernel else { return false }
        question = nil
        return turn(isReady: true, since: since)
    }

    private mutating func answer(_ room: Room) -> Bool {
        guard let (kind, since) = question, kind == .room else { return false }
        question = nil
        if since == machine.transfers {
            (isRoomKnown, isAwaitingBackend) = (room == .found, room == .awaited)
        }
        machine.checked(room, since: since)
        return true
    }

    private mutating func turnQueue() -> Bool {
        guard isEnqueued else { return false }
        isEnqueued = false
        perform(machine.queueTurned())
        return true
    }

    private mutating func beginCallback(_ event: Stream.Event) {
        check(callback == nil, "a callback inside another")
        check(!machine.isClosed, "an event after the closing")
        check(!delivered.contains(event), "an event twice")
        check(!delivered.contains(.errorOccurred), "an event after an error")
        check(!delivered.contains(.endEncountered) || event == .errorOccurred, "after the end")
        if event != .openCompleted, event != .errorOccurred {
            check(delivered.contains(.openCompleted), "an event before the opening")
        }
        if event == machine.event, readying == .kernelWhenFull { check(isRoomKnown, "unchecked room") }
        callback = (event, hasDelegate, false)
        if hasDelegate { delivered.insert(event) }
    }

    private mutating func endCallback(goesOn: Bool) -> Bool {
        guard let (event, hasDelegate, isAnswered) = callback else { return false }
        callback = nil
        let isVoid = isAnswered || event == machine.event && !machine.isOpen
        let isError = machine.status == .error && event != .errorOccurred
        let action = machine.delivered(event, toDelegate: hasDelegate, goesOn: goesOn && isScheduled)
        let isKept = machine.isClosed || isVoid || isError || machine.pending.contains(event)
        check(hasDelegate || isKept, "an event without a delegate is lost")
        perform(action)
        return true
    }

    private mutating func setDelegate(isOther: Bool) {
        hasDelegate = true
        if machine.welcomeDelegate(isOther: isOther) { forgetAnswer() }
    }

    private mutating func schedule(onQueue: Bool) {
        guard !machine.isClosed else { return }
        if onQueue || isOnQueue { unschedule() }
        if !isScheduled { forgetAnswer() }
        machine.schedule(isFirst: !isScheduled)
        (isScheduled, isOnQueue) = (true, onQueue)
    }

    /// The event of bytes or space may be delivered once more, and the callback under way need not be.
    private mutating func forgetAnswer() {
        delivered.subtract(machine.event)
        if callback?.event == machine.event { callback?.isVoid = true }
    }

    private mutating func unschedule() {
        machine.leaveQueue()
        (isScheduled, isOnQueue, isEnqueued, question) = (false, false, false, nil)
    }
}
