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
    private var token: (any NSObjectProtocol)?

    init() {
        queue = NotificationQueue(notificationCenter: center)
        token = center.addObserver(forName: nil, object: nil, queue: nil) { [log] in
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
    func on(_ name: String, _ action: @escaping @Sendable () -> Void) -> any NSObjectProtocol {
        center.addObserver(forName: Notification.Name(name), object: nil, queue: nil) { _ in action() }
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

/// Runs the loop until it is about to wait twice with no new line in the log between.
private func runUntilIdle(_ mode: RunLoop.Mode, _ log: Trace) {
    let (loop, source) = (RunLoop.current, RunLoop.Source {})
    var lineCount = -1
    let observer = RunLoop.Observer(for: .beforeWaiting, order: .max) { _, _ in
        if log.all.count == lineCount { loop.stop() }
        lineCount = log.all.count
        loop.wakeUp()
    }
    loop.add(source, forMode: mode)
    loop.add(observer, forMode: mode)
    loop.run(in: mode)
    source.invalidate()
    observer.invalidate()
}

private func runUntilIdle(_ log: Trace) { runUntilIdle(.default, log) }

@Suite(.runLoop) struct NotificationQueueTests {
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

    @Test(
        arguments: ["", RunLoop.Mode.default.rawValue, RunLoop.Mode.tracking.rawValue, "other"],
        [true, false])
    func `a notification enqueued with now and the common modes is posted only in those modes`(
        mode: String, hasEnqueued: Bool
    ) {
        let (queue, loop) = (LoggedQueue(), RunLoop.current)
        if hasEnqueued { queue.enqueue("before", .whenIdle, .none, [.common]) }
        if mode != "" {
            Timer.scheduled(after: .zero, forMode: RunLoop.Mode(mode)) { _ in
                queue.enqueue("now", .now, .none, [.common])
                loop.stop()
            }
            loop.run(in: RunLoop.Mode(mode))
        } else {
            queue.enqueue("now", .now, .none, [.common])
        }
        #expect(queue.log.all.contains("now") == (mode != "other"))
    }

    @Test func `asap notifications are posted before idle ones, each style in order`() {
        let queue = LoggedQueue()
        queue.enqueue("idle 1", .whenIdle)
        queue.enqueue("asap 1", .asap)
        queue.enqueue("idle 2", .whenIdle)
        queue.enqueue("asap 2", .asap)
        queue.enqueue("now", .now)
        runUntilIdle(queue.log)
        #expect(queue.log.all == ["now", "asap 1", "asap 2", "idle 1", "idle 2"])
    }

    @Test func `a notification enqueued in a source's handler is posted before the run returns`() async throws
    {
        try await onItsOwnThread {
            let queue = LoggedQueue()
            let source = RunLoop.Source {
                NotificationQueue.default.enqueue(.init(name: .mark), postingStyle: .asap)
            }
            let token = NotificationCenter.default.addObserver(forName: .mark, object: nil, queue: nil) {
                [log = queue.log] _ in
                log("mark")
            }
            RunLoop.current.add(source, forMode: .default)
            source.signal()
            RunLoop.current.run(mode: .default, before: Deadline.distantFuture)
            source.invalidate()
            NotificationCenter.default.removeObserver(token)
            #expect(queue.log.all == ["mark"])
        }
    }

    @Test func `a block that an idle notification schedules runs before the loop waits`() {
        let queue = LoggedQueue()
        let loop = RunLoop.current
        let token = queue.on("idle") { loop.perform { loop.stop() } }
        queue.enqueue("idle", .whenIdle)
        let source = RunLoop.Source {}
        RunLoop.current.add(source, forMode: .default)
        #expect(RunLoop.current.run(in: .default) == .stopped)
        source.invalidate()
        queue.center.removeObserver(token)
    }

    @Test func `idle notifications wait until no asap notifications are pending`() {
        let queue = LoggedQueue()
        nonisolated(unsafe) let same = queue  // used only on this thread
        let token = queue.on("asap 1") { same.enqueue("asap 2", .asap) }
        queue.enqueue("idle", .whenIdle)
        queue.enqueue("asap 1", .asap)
        runUntilIdle(queue.log)
        queue.center.removeObserver(token)
        #expect(queue.log.all.last == "idle")
        #expect(Set(queue.log.all) == ["asap 1", "asap 2", "idle"])
    }

    @Test func `a notification is posted only in its modes`() {
        let queue = LoggedQueue()
        let (mode, other) = (RunLoop.Mode("its own"), RunLoop.Mode("common later"))
        queue.enqueue("own", .asap, .none, [mode])
        queue.enqueue("common", .asap, .none, [.common])
        queue.enqueue("default", .asap)
        runUntilIdle(other, queue.log)
        #expect(queue.log.all.isEmpty)
        RunLoop.current.addCommonMode(other)
        runUntilIdle(other, queue.log)
        #expect(queue.log.all == ["common"])
        runUntilIdle(mode, queue.log)
        #expect(queue.log.all == ["common", "own"])
        runUntilIdle(queue.log)
        #expect(queue.log.all == ["common", "own", "default"])
    }

    @Test func `a notification enqueued with now is dropped while the loop runs in another mode`()
        async throws
    {
        try await onItsOwnThread {
            let queue = LoggedQueue()
            queue.enqueue("outside", .now, .none, [RunLoop.Mode("other")])
            let loop = RunLoop.current
            loop.perform(order: 0) {
                queue.enqueue("in another mode", .now, .none, [RunLoop.Mode("other")])
                queue.enqueue("in its mode", .now)
            }
            runUntilIdle(queue.log)
            #expect(queue.log.all == ["outside", "in its mode"])
        }
    }

    @Test func `coalescing removes matching notifications of every style`() {
        let queue = LoggedQueue()
        let (sender, other) = (NSObject(), NSObject())
        queue.enqueue("a", .asap, from: sender)
        queue.enqueue("a", .asap, from: other)
        queue.enqueue("b", .asap, from: sender)
        queue.enqueue("a", .whenIdle, from: sender, [.onName, .onSender])
        runUntilIdle(queue.log)
        #expect(queue.log.all == ["a", "b", "a"])
        queue.enqueue("a", .asap, from: sender)
        queue.enqueue("a", .asap, from: other)
        queue.enqueue("a", .now, from: nil, .onName)
        runUntilIdle(queue.log)
        #expect(queue.log.all == ["a", "b", "a", "a"])
    }

    @Test(
        arguments: [[], .onName, .onSender, [.onName, .onSender]]
            as [NotificationQueue.NotificationCoalescing])
    func `dequeuing removes only notifications that match in every part of the mask`(
        mask: NotificationQueue.NotificationCoalescing
    ) async throws {
        let left = try await onItsOwnThread {
            let queue = LoggedQueue()
            queue.enqueue("name", .asap, from: "sender")
            queue.enqueue("name", .asap, from: "other")
            queue.enqueue("other", .asap, from: "sender")
            queue.enqueue("other", .asap)
            queue.queue.dequeueNotifications(
                matching: Notification(name: .init("name"), object: "sender"), coalesceMask: mask)
            runUntilIdle(queue.log)
            return queue.log.all
        }
        switch mask {
        case .none: #expect(left == ["name", "name", "other", "other"])
        case .onName: #expect(left == ["other", "other"])
        case .onSender: #expect(left == ["name", "other"])
        default: #expect(left == ["name", "other", "other"])
        }
    }

    @Test(arguments: [.onSender, [.onName, .onSender]] as [NotificationQueue.NotificationCoalescing])
    func `replacing a notification does not compare it with every other`(
        mask: NotificationQueue.NotificationCoalescing
    ) {
        let (queue, comparisons, count) = (LoggedQueue(), Shared(0), 1000)
        for index in 0..<2 * count {
            let sender = CountedSender(number: index % count, comparisons: comparisons)
            queue.enqueue("\(index % count)", .asap, from: sender, mask)
        }
        runUntilIdle(queue.log)
        #expect(queue.log.all == (0..<count).map(String.init) && comparisons.value < 50 * count)
    }

    @Test func `a sender whose notification is replaced may use the queue in its deinit`() {
        let queue = LoggedQueue()
        nonisolated(unsafe) let same = queue  // used only on this thread
        queue.enqueue("a", .asap, from: AtEnd { same.enqueue("b", .asap) })
        queue.enqueue("a", .asap, .onName)
        runUntilIdle(queue.log)
        #expect(queue.log.all == ["b", "a"])
    }

    @Test(arguments: [true, false])
    func `so may a sender that equals one whose notification is removed later`(isDequeued: Bool) async throws
    {
        try await onItsOwnThread {
            let queue = LoggedQueue()
            nonisolated(unsafe) let same = queue  // used only on this thread
            queue.enqueue("a", .asap, from: EqualSender(end: AtEnd { same.enqueue("end", .asap) }))
            queue.enqueue("b", .asap, from: EqualSender(end: nil))
            for name in isDequeued ? ["a", "b"] : [] {
                queue.queue.dequeueNotifications(
                    matching: Notification(name: .init(name)), coalesceMask: .onName)
            }
            runUntilIdle(queue.log)
            #expect(queue.log.all == (isDequeued ? ["end"] : ["a", "b", "end"]))
        }
    }

    @Test func `notifications with several sets of modes are posted in order`() {
        let queue = LoggedQueue()
        let sets: [[RunLoop.Mode]] = [[.default], [.default, .tracking], [.common]]
        for index in 0..<9 { queue.enqueue("\(index)", .asap, .none, sets[index % 3]) }
        queue.enqueue("other", .asap, .none, [RunLoop.Mode("other")])
        runUntilIdle(queue.log)
        #expect(queue.log.all == (0..<9).map(String.init))
    }

    @Test func `every thread has its own default queue, which is released with the thread`() async throws {
        nonisolated(unsafe) weak var first: NotificationQueue?
        try await onItsOwnThread {
            first = NotificationQueue.default
            #expect(first != nil && NotificationQueue.default === first)
            NotificationQueue.default.enqueue(.init(name: .mark, object: NSObject()), postingStyle: .whenIdle)
        }
        let isAnother = try await onItsOwnThread { NotificationQueue.default !== first }
        #expect(isAnother)
    }

    @Test func `a released queue posts nothing, even if another thread releases it`() async throws {
        try await withRunLoop { loop in
            let log = Trace()
            let (created, queue) = (DispatchSemaphore(value: 0), Shared<Carrier<NotificationQueue>?>(nil))
            loop.performAndWait {
                let center = NotificationCenter()
                _ = center.addObserver(forName: nil, object: nil, queue: nil) { log($0.name.rawValue) }
                let own = NotificationQueue(notificationCenter: center)
                queue.value = Carrier(own)
                own.enqueue(
                    .init(name: .mark), postingStyle: .asap, coalesceMask: .none, forModes: [.init("other")])
                created.signal()
            }
            created.wait()
            queue.value = nil
            loop.performAndWait { runUntilIdle(.init("other"), log) }
            #expect(log.all.isEmpty)
        }
    }

    @Test func `using another thread's queue traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let queue = Shared<Carrier<NotificationQueue>?>(nil)
            queue.value = Carrier(.default)
            try await onItsOwnThread {
                queue.value?.value.enqueue(.init(name: .mark), postingStyle: .asap)
            }
        }
        #expect(result.message.contains("A NotificationQueue must be used on the loop's own thread"))
    }
}

extension Notification.Name {
    fileprivate static let mark = Notification.Name("NotificationQueueTests")
}
