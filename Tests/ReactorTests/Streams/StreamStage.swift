import Dispatch
import Reactor
import ReactorTestSupport

/// Where a stream delivers its events.
enum StreamPlace: CaseIterable, Sendable {
    case ownLoop, otherLoop, queue
}

/// A place that delivers events, and ways to wait for them.
final class StreamStage {
    let place: StreamPlace
    let loop: RunLoop
    let queue = DispatchQueue(label: "events")
    private let thread: RunLoopThread?

    init(_ place: StreamPlace) throws {
        self.place = place
        thread = place == .otherLoop ? try RunLoopThread(name: "streams") : nil
        loop = thread?.runLoop ?? .current
    }

    deinit { thread?.stop() }

    func schedule(_ stream: Stream) {
        if place == .queue {
            stream.setDispatchQueue(queue)
        } else {
            stream.schedule(in: loop, forMode: .default)
        }
    }

    func remove(_ stream: Stream) {
        if place == .queue {
            stream.setDispatchQueue(nil)
        } else {
            stream.remove(from: loop, forMode: .default)
        }
    }

    func start(_ stream: Stream, _ delegate: Counter) {
        stream.delegate = delegate
        schedule(stream)
        stream.open()
    }

    /// Waits until the events of `delegate` satisfy `condition`.
    func wait(for delegate: Counter, until condition: ([UInt]) -> Bool) {
        if place != .ownLoop { return delegate.wait(until: condition) }
        loop.serve { condition(delegate.events.value) }
    }

    /// Serves what is ready, and what becomes ready by that.
    func settle() throws {
        switch place {
        case .ownLoop: loop.settle()
        case .otherLoop: loop.performAndWait { RunLoop.current.settle() }
        case .queue:
            for _ in 0..<2 {
                try waitForStreamsThread()
                queue.sync {}
            }
        }
    }

    /// Whether no stream keeps the calling thread's loop running.
    var isEmpty: Bool { place == .otherLoop || loop.poll() == .finished }
}
