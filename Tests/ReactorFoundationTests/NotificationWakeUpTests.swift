import ReactorFoundation
import ReactorTestSupport
import Testing

@Suite struct NotificationWakeUpTests {
    @Test func `a notification that the receiver of an idle one enqueues is posted before the loop sleeps`()
        async throws
    {
        try await onItsOwnThread {
            let (loop, center) = (RunLoop.current, NotificationCenter())
            let queue = Carrier(NotificationQueue(notificationCenter: center))
            let (idle, soon) = (Notification.Name("idle"), Notification.Name("soon"))
            let tokens = [
                center.addObserver(forName: idle, object: nil, queue: nil) { _ in
                    queue.value.enqueue(Notification(name: soon), postingStyle: .asap)
                },
                center.addObserver(forName: soon, object: nil, queue: nil) { _ in loop.stop() },
            ]
            let source = RunLoop.Source {}
            loop.add(source, forMode: .default)
            queue.value.enqueue(Notification(name: idle), postingStyle: .whenIdle)
            #expect(loop.run(in: .default, until: .now.advanced(by: .seconds(5))) == .stopped)
            for token in tokens { center.removeObserver(token) }
        }
    }
}
