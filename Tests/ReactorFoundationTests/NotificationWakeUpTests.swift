import ReactorFoundation
import ReactorTestSupport
import Testing

@Suite struct NotificationWakeUpTests {
    @Test func `a notification that the receiver of an idle one enqueues is posted before the loop sleeps`()
        async throws
    {
        try await onItsOwnThread {
            let posted = Posted { name, queue in
                if name == "idle" { queue.enqueue("last", .asap) }
            }
            posted.queue.enqueue("idle", .whenIdle)
            #expect(posted.runUntilLast() == .stopped)
        }
    }

    @Test func `an idle notification waits for those that the receivers of others enqueue`() async throws {
        try await onItsOwnThread {
            let posted = Posted { name, queue in
                guard let number = Int(name), number < 5 else { return }
                queue.enqueue("\(number + 1)", .asap)
            }
            posted.queue.enqueue("last", .whenIdle)
            posted.queue.enqueue("1", .asap)
            #expect(posted.runUntilLast() == .stopped)
            #expect(posted.names.all == ["1", "2", "3", "4", "5", "last"])
        }
    }
}

/// A queue on the current loop, and the names of the notifications that it has posted.
private final class Posted {
    let names = Trace()
    let queue: NotificationQueue
    private let center = NotificationCenter()
    private var token: (any NSObjectProtocol)?

    init(_ received: @escaping @Sendable (String, NotificationQueue) -> Void) {
        queue = NotificationQueue(notificationCenter: center)
        let (loop, queue) = (RunLoop.current, Carrier(queue))
        token = center.addObserver(forName: nil, object: nil, queue: nil) { [names] notification in
            names(notification.name.rawValue)
            received(notification.name.rawValue, queue.value)
            if notification.name.rawValue == "last" { loop.stop() }
        }
    }

    /// Runs the loop until a notification called "last" is posted, or 5 s have passed without a reason to end a sleep.
    func runUntilLast() -> RunLoop.RunResult {
        let source = RunLoop.Source {}
        RunLoop.current.add(source, forMode: .alone)
        defer { token.map { center.removeObserver($0) } }
        return RunLoop.current.run(in: .alone, until: .now.advanced(by: .seconds(5)))
    }
}

extension RunLoop.Mode {
    /// A mode that is not common, in which a queue has one observer.
    fileprivate static let alone = RunLoop.Mode("alone")
}

extension NotificationQueue {
    fileprivate func enqueue(_ name: String, _ style: PostingStyle) {
        enqueue(
            Notification(name: Notification.Name(name)), postingStyle: style, coalesceMask: .none,
            forModes: [.alone])
    }
}
