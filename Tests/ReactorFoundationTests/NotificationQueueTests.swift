import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// A queue with its own center, and a log of the notifications posted to it.
private final class LoggedQueue {
    let center = NotificationCenter()
    let log = Trace()
    let queue: NotificationQueue

    init() {
        queue = NotificationQueue(notificationCenter: center)
        _ = center.addObserver(forName: nil, object: nil, queue: nil) { [log] in
            log($0.name.rawValue)
        }
    }

    func enqueue(
        _ name: String, _ style: NotificationQueue.PostingStyle, from sender: Any? = nil,
        _ mask: NotificationQueue.NotificationCoalescing = .none, _ modes: [RunLoop.Mode]? = nil
    ) {
        let notification = Notification(name: Notification.Name(name), object: sender)
        queue.enqueue(notification, postingStyle: style, coalesceMask: mask, forModes: modes)
    }

    /// Calls `action` for every notification called `name`.
    func on(_ name: String, _ action: @escaping () -> Void) {
        nonisolated(unsafe) let action = action  // called only on this thread
        _ = center.addObserver(forName: Notification.Name(name), object: nil, queue: nil) { _ in action() }
    }

    /// Runs the loop until nothing is posted, and returns what has been posted in all.
    func posted(in mode: RunLoop.Mode = .default) -> [String] {
        runUntilIdle(mode)
        return log.all
    }
}

/// A sender that counts its comparisons.
private struct CountedSender: Hashable {
    let number: Int
    let comparisons: Shared<Int>

    static func == (left: Self, right: Self) -> Bool {
        left.comparisons.value += 1
        return left.number == right.number
    }

    func hash(into hasher: inout Hasher) { hasher.combine(number) }
}

/// A sender that equals all others of its type.
private struct EqualSender: Hashable {
    let end: AtEnd?

    static func == (left: Self, right: Self) -> Bool { true }

    func hash(into hasher: inout Hasher) {}
}

/// Runs the loop until nothing is posted any more.
private func runUntilIdle(_ mode: RunLoop.Mode) {
    let source = RunLoop.current.hold(mode)
    withVirtualTime { $0.runUntilIdle(inMode: mode) }
    source.invalidate()
}

@Suite(.runLoop) struct NotificationQueueTests {
    // MARK: Order

    @Test func `asap notifications are posted before idle ones, each style in order`() {
        let queue = LoggedQueue()
        queue.enqueue("idle 1", .whenIdle)
        queue.enqueue("asap 1", .asap)
        queue.enqueue("idle 2", .whenIdle)
        queue.enqueue("asap 2", .asap)
        queue.enqueue("now", .now)
        #expect(queue.posted() == ["now", "asap 1", "asap 2", "idle 1", "idle 2"])
    }

    @Test(arguments: ["asap", "idle"])
    func
        `an idle notification waits for what the receivers of others enqueue, and the loop posts it before it sleeps`(
            style: String
        ) throws
    {
        nonisolated(unsafe) let queue = LoggedQueue()  // used only on this thread
        // Not common, so that only the queue ends the loop's sleep.
        let (loop, mode) = (RunLoop.current, RunLoop.Mode("alone"))
        loop.hold(mode)
        for number in 1..<5 {
            queue.on("\(number)") { queue.enqueue("\(number + 1)", .asap, .none, [mode]) }
        }
        queue.on(style == "asap" ? "last" : "5") { loop.stop() }
        queue.enqueue("last", .whenIdle, .none, [mode])
        queue.enqueue("1", style == "asap" ? .asap : .whenIdle, .none, [mode])
        let result = withVirtualTime { _ in loop.run(in: mode, until: .now + .seconds(5)) }
        let names = (1...5).map(String.init)
        #expect(
            result == .stopped && queue.log.all == (style == "asap" ? names + ["last"] : ["last"] + names))
    }

    @Test func `notifications with several sets of modes are posted in order`() {
        let queue = LoggedQueue()
        let sets: [[RunLoop.Mode]] = [[.default], [.default, .tracking], [.common]]
        for index in 0..<9 { queue.enqueue("\(index)", .asap, .none, sets[index % 3]) }
        queue.enqueue("other", .asap, .none, [RunLoop.Mode("other")])
        #expect(queue.posted() == (0..<9).map(String.init))
    }

    @Test func `a notification enqueued in a source's handler is posted before the run returns`() {
        nonisolated(unsafe) let queue = LoggedQueue()  // used only on this thread
        let source = RunLoop.Source { queue.enqueue("mark", .asap) }
        RunLoop.current.add(source, forMode: .default)
        source.signal()
        RunLoop.current.run(mode: .default, before: Deadline.distantFuture)
        #expect(queue.log.all == ["mark"])
    }

    // MARK: Modes

    @Test func `a notification is posted only in its modes`() {
        let queue = LoggedQueue()
        let (mode, other) = (RunLoop.Mode("its own"), RunLoop.Mode("common later"))
        queue.enqueue("own", .asap, .none, [mode])
        queue.enqueue("common", .asap, .none, [.common])
        queue.enqueue("default", .asap)
        #expect(queue.posted(in: other).isEmpty)
        RunLoop.current.addCommonMode(other)
        #expect(queue.posted(in: other) == ["common"])
        #expect(queue.posted(in: mode) == ["common", "own"])
        #expect(queue.posted() == ["common", "own", "default"])
    }

    @Test(arguments: [NotificationQueue.PostingStyle.asap, .whenIdle, .now])
    func `a notification for no mode is dropped`(style: NotificationQueue.PostingStyle) {
        let queue = LoggedQueue()
        weak var sender: NSObject?
        do {
            let object = NSObject()
            sender = object
            queue.enqueue("dropped", style, from: object, .none, [])
        }
        #expect(sender == nil && queue.log.all.isEmpty)
    }

    @Test func `a notification enqueued with now outside a run is posted at once, in any mode`() {
        let queue = LoggedQueue()
        queue.enqueue("outside", .now, .none, [RunLoop.Mode("other")])
        #expect(queue.log.all == ["outside"])
    }

    @Test(arguments: [.default, .tracking, RunLoop.Mode("other")] as [RunLoop.Mode], [true, false])
    func `a notification enqueued with now in a run is posted in its modes only`(
        mode: RunLoop.Mode, hasEnqueued: Bool
    ) {
        nonisolated(unsafe) let queue = LoggedQueue()  // used only on this thread
        let loop = RunLoop.current
        if hasEnqueued { queue.enqueue("before", .whenIdle, .none, [.common]) }
        let source = RunLoop.Source {
            queue.enqueue("common", .now, .none, [.common])
            queue.enqueue("tracking", .now, .none, [.tracking])
            loop.stop()
        }
        loop.add(source, forMode: mode)
        source.signal()
        loop.run(in: mode)
        #expect(queue.log.all.contains("common") == (mode != RunLoop.Mode("other")))
        #expect(queue.log.all.contains("tracking") == (mode == .tracking))
    }

    // MARK: Coalescing

    @Test func `coalescing removes matching notifications of every style`() {
        let (queue, sender, other) = (LoggedQueue(), NSObject(), NSObject())
        queue.enqueue("a", .asap, from: sender)
        queue.enqueue("a", .asap, from: other)
        queue.enqueue("b", .asap, from: sender)
        queue.enqueue("a", .whenIdle, from: sender, [.onName, .onSender])
        #expect(queue.posted() == ["a", "b", "a"])
        queue.enqueue("a", .asap, from: sender)
        queue.enqueue("a", .asap, from: other)
        queue.enqueue("a", .now, from: nil, .onName)
        #expect(queue.posted() == ["a", "b", "a", "a"])
    }

    @Test(
        arguments: [
            (.none, ["name", "name", "other", "other"]), (.onName, ["other", "other"]),
            (.onSender, ["name", "other"]),
            ([.onName, .onSender], ["name", "other", "other"]),
        ] as [(NotificationQueue.NotificationCoalescing, [String])])
    func `dequeuing removes only notifications that match in every part of the mask`(
        mask: NotificationQueue.NotificationCoalescing, left: [String]
    ) {
        let queue = LoggedQueue()
        queue.enqueue("name", .asap, from: "sender")
        queue.enqueue("name", .asap, from: "other")
        queue.enqueue("other", .asap, from: "sender")
        queue.enqueue("other", .asap)
        queue.queue.dequeueNotifications(
            matching: Notification(name: .init("name"), object: "sender"), coalesceMask: mask)
        #expect(queue.posted() == left)
    }

    @Test(arguments: [.onSender, [.onName, .onSender]] as [NotificationQueue.NotificationCoalescing])
    func `replacing a notification does not compare it with every other`(
        mask: NotificationQueue.NotificationCoalescing
    ) {
        let (queue, comparisons, count) = (LoggedQueue(), Shared(0), 300)
        for index in 0..<2 * count {
            let sender = CountedSender(number: index % count, comparisons: comparisons)
            queue.enqueue("\(index % count)", .asap, from: sender, mask)
        }
        #expect(queue.posted() == (0..<count).map(String.init) && comparisons.value < 50 * count)
    }

    // MARK: Lifetime

    @Test func `a sender whose notification is replaced may use the queue in its deinit`() {
        let queue = LoggedQueue()
        nonisolated(unsafe) let same = queue  // used only on this thread
        queue.enqueue("a", .asap, from: AtEnd { same.enqueue("b", .asap) })
        queue.enqueue("a", .asap, .onName)
        #expect(queue.posted() == ["b", "a"])
    }

    @Test(arguments: [true, false])
    func `so may a sender that equals one whose notification is removed later`(isDequeued: Bool) {
        let queue = LoggedQueue()
        nonisolated(unsafe) let same = queue  // used only on this thread
        queue.enqueue("a", .asap, from: EqualSender(end: AtEnd { same.enqueue("end", .asap) }))
        queue.enqueue("b", .asap, from: EqualSender(end: nil))
        for name in isDequeued ? ["a", "b"] : [] {
            queue.queue.dequeueNotifications(matching: Notification(name: .init(name)), coalesceMask: .onName)
        }
        #expect(queue.posted() == (isDequeued ? ["end"] : ["a", "b", "end"]))
    }

    @Test func `every thread has its own default queue, which is released with the thread`() throws {
        let own = NotificationQueue.default
        #expect(NotificationQueue.default === own)
        let fate = try onAThread {
            let queue = NotificationQueue.default
            queue.enqueue(.init(name: .mark, object: NSObject()), postingStyle: .whenIdle)
            return Carrier { [weak queue] in queue }
        }
        #expect(fate.value() == nil)
    }

    @Test func `a released queue posts nothing, even if another thread releases it`() throws {
        let (log, mode) = (Trace(), RunLoop.Mode("other"))
        try withRunLoop { loop in
            let queue = Shared<Carrier<NotificationQueue>?>(nil)
            loop.performAndWait {
                let center = NotificationCenter()
                _ = center.addObserver(forName: nil, object: nil, queue: nil) { log($0.name.rawValue) }
                let own = NotificationQueue(notificationCenter: center)
                queue.value = Carrier(own)
                own.enqueue(.init(name: .mark), postingStyle: .asap, coalesceMask: .none, forModes: [mode])
            }
            queue.value = nil
            loop.performAndWait { runUntilIdle(mode) }
        }
        #expect(log.all.isEmpty)
    }

    @Test func `using another thread's queue traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let queue = Carrier(NotificationQueue.default)
            try onAThread { queue.value.enqueue(.init(name: .mark), postingStyle: .asap) }
        }
        #expect(result.message.contains("NotificationQueue"))
    }
}

extension Notification.Name {
    fileprivate static let mark = Notification.Name("NotificationQueueTests")
}
