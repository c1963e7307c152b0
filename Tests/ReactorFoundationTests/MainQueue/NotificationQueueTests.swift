import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

/// A center of a test's own, whose notifications are written down.
private final class Board {
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

    /// Calls `action` whenever a notification called `name` is posted.
    func on(_ name: String, _ action: @escaping @Sendable () -> Void) -> any NSObjectProtocol {
        center.addObserver(forName: Notification.Name(name), object: nil, queue: nil) { _ in action() }
    }
}

/// Runs the loop until it is about to wait, and was so before without anything having been written since.
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

@Suite struct NotificationQueueTests {
    @Test(
        arguments: ["", RunLoop.Mode.default.rawValue, RunLoop.Mode.tracking.rawValue, "other"],
        [true, false])
    func `one to be posted now in the common modes is posted in these, whatever was enqueued before`(
        mode: String, hasEnqueued: Bool
    ) async throws {
        try await onItsOwnThread {
            let (board, loop) = (Board(), RunLoop.current)
            if hasEnqueued { board.enqueue("before", .whenIdle, .none, [.common]) }
            if mode != "" {
                Timer.scheduled(after: .zero, forMode: RunLoop.Mode(mode)) { _ in
                    board.enqueue("now", .now, .none, [.common])
                    loop.stop()
                }
                loop.run(in: RunLoop.Mode(mode))
            } else {
                board.enqueue("now", .now, .none, [.common])
            }
            #expect(board.log.all.contains("now") == (mode != "other"))
        }
    }

    @Test func `those as soon as possible come before those when idle, each kind in its order`() async throws
    {
        try await onItsOwnThread {
            let board = Board()
            board.enqueue("idle 1", .whenIdle)
            board.enqueue("asap 1", .asap)
            board.enqueue("idle 2", .whenIdle)
            board.enqueue("asap 2", .asap)
            board.enqueue("now", .now)
            runUntilIdle(board.log)
            #expect(board.log.all == ["now", "asap 1", "asap 2", "idle 1", "idle 2"])
        }
    }

    @Test func `what is enqueued in a callout is posted before the activation returns`() async throws {
        try await onItsOwnThread {
            let board = Board()
            let source = RunLoop.Source {
                NotificationQueue.default.enqueue(.init(name: .mark), postingStyle: .asap)
            }
            let token = NotificationCenter.default.addObserver(forName: .mark, object: nil, queue: nil) {
                [log = board.log] _ in
                log("mark")
            }
            RunLoop.current.add(source, forMode: .default)
            source.signal()
            RunLoop.current.run(mode: .default, before: Deadline.distantFuture)
            source.invalidate()
            NotificationCenter.default.removeObserver(token)
            #expect(board.log.all == ["mark"])
        }
    }

    @Test func `one that an idle one brings about is posted before the loop waits`() async throws {
        try await onItsOwnThread {
            let board = Board()
            let thread = RunLoop.current
            let token = board.on("idle") { thread.perform { thread.stop() } }
            board.enqueue("idle", .whenIdle)
            let source = RunLoop.Source {}
            RunLoop.current.add(source, forMode: .default)
            #expect(RunLoop.current.run(in: .default) == .stopped)
            source.invalidate()
            board.center.removeObserver(token)
        }
    }

    @Test func `idle ones wait until those as soon as possible have brought about no more`() async throws {
        try await onItsOwnThread {
            let board = Board()
            nonisolated(unsafe) let same = board  // posted on this thread
            let token = board.on("asap 1") { same.enqueue("asap 2", .asap) }
            board.enqueue("idle", .whenIdle)
            board.enqueue("asap 1", .asap)
            runUntilIdle(board.log)
            board.center.removeObserver(token)
            #expect(board.log.all.last == "idle")
            #expect(Set(board.log.all) == ["asap 1", "asap 2", "idle"])
        }
    }

    @Test func `a notification waits for one of its modes`() async throws {
        try await onItsOwnThread {
            let board = Board()
            let (mode, other) = (RunLoop.Mode("its own"), RunLoop.Mode("common later"))
            board.enqueue("own", .asap, .none, [mode])
            board.enqueue("common", .asap, .none, [.common])
            board.enqueue("default", .asap)
            runUntilIdle(other, board.log)
            #expect(board.log.all.isEmpty)
            RunLoop.current.addCommonMode(other)
            runUntilIdle(other, board.log)
            #expect(board.log.all == ["common"])
            runUntilIdle(mode, board.log)
            #expect(board.log.all == ["common", "own"])
            runUntilIdle(board.log)
            #expect(board.log.all == ["common", "own", "default"])
        }
    }

    @Test func `one to be posted now is dropped while its modes do not run`() async throws {
        try await onItsOwnThread {
            let board = Board()
            board.enqueue("outside", .now, .none, [RunLoop.Mode("other")])
            let loop = RunLoop.current
            loop.perform(order: 0) {
                board.enqueue("in another mode", .now, .none, [RunLoop.Mode("other")])
                board.enqueue("in its mode", .now)
            }
            runUntilIdle(board.log)
            #expect(board.log.all == ["outside", "in its mode"])
        }
    }

    @Test func `waiting ones of the same name and sender give way, whatever their style`() async throws {
        try await onItsOwnThread {
            let board = Board()
            let (sender, other) = (NSObject(), NSObject())
            board.enqueue("a", .asap, from: sender)
            board.enqueue("a", .asap, from: other)
            board.enqueue("b", .asap, from: sender)
            board.enqueue("a", .whenIdle, from: sender, [.onName, .onSender])
            runUntilIdle(board.log)
            #expect(board.log.all == ["a", "b", "a"])
            board.enqueue("a", .asap, from: sender)
            board.enqueue("a", .asap, from: other)
            board.enqueue("a", .now, from: nil, .onName)
            runUntilIdle(board.log)
            #expect(board.log.all == ["a", "b", "a", "a"])
        }
    }

    @Test(
        arguments: [[], .onName, .onSender, [.onName, .onSender]]
            as [NotificationQueue.NotificationCoalescing])
    func `those that match in all that is asked for are dequeued`(
        mask: NotificationQueue.NotificationCoalescing
    ) async throws {
        let left = try await onItsOwnThread {
            let board = Board()
            board.enqueue("name", .asap, from: "sender")
            board.enqueue("name", .asap, from: "other")
            board.enqueue("other", .asap, from: "sender")
            board.enqueue("other", .asap)
            board.queue.dequeueNotifications(
                matching: Notification(name: .init("name"), object: "sender"), coalesceMask: mask)
            runUntilIdle(board.log)
            return board.log.all
        }
        switch mask {
        case .none: #expect(left == ["name", "name", "other", "other"])
        case .onName: #expect(left == ["other", "other"])
        case .onSender: #expect(left == ["name", "other"])
        default: #expect(left == ["name", "other", "other"])
        }
    }

    @Test func `every thread has a queue of its own, which ends with it`() async throws {
        nonisolated(unsafe) weak var first: NotificationQueue?
        try await onItsOwnThread {
            first = NotificationQueue.default
            #expect(first != nil && NotificationQueue.default === first)
            NotificationQueue.default.enqueue(.init(name: .mark, object: NSObject()), postingStyle: .whenIdle)
        }
        let isAnother = try await onItsOwnThread { NotificationQueue.default !== first }
        #expect(isAnother)
    }

    @Test func `a queue that is let go of posts nothing more, wherever that happens`() async throws {
        try await withRunLoop { loop in
            let log = Trace()
            let (made, queue) = (Happening(), Shared<Carrier<NotificationQueue>?>(nil))
            loop.performAndWait {
                let center = NotificationCenter()
                _ = center.addObserver(forName: nil, object: nil, queue: nil) { log($0.name.rawValue) }
                let own = NotificationQueue(notificationCenter: center)
                queue.value = Carrier(own)
                own.enqueue(
                    .init(name: .mark), postingStyle: .asap, coalesceMask: .none, forModes: [.init("other")])
                made.happened()
            }
            made.wait()
            queue.value = nil
            loop.performAndWait { runUntilIdle(.init("other"), log) }
            #expect(log.all.isEmpty)
        }
    }

    @Test func `a queue of another thread is not for use`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let queue = Shared<Carrier<NotificationQueue>?>(nil)
            queue.value = Carrier(.default)
            try await onItsOwnThread {
                queue.value?.value.enqueue(.init(name: .mark), postingStyle: .asap)
            }
        }
        #expect(result.message.contains("a notification queue is used on its own thread"))
    }
}

extension Notification.Name {
    fileprivate static let mark = Notification.Name("NotificationQueueTests")
}
