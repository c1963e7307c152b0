import Reactor

/// Measures the time for which a loop serves the session's modes, from the times of the loop's activities. Pure.
///
/// A sleep counts fully, from the last observer before it to the first one after it. The time between two other activities
/// counts up to a limit, because a callback, or a nested run in another mode, may have taken it.
struct ServedTime {
    /// A pass that takes longer does not serve the sockets meanwhile.
    private static let most = Int64(100_000_000)

    private var total: Int64 = 0
    private var last: Int64?
    private var isAsleep = false

    /// Nanoseconds.
    func elapsed(at time: Int64) -> Int64 { total + since(time) }

    mutating func note(_ activity: RunLoop.Activities, at time: Int64) {
        total += isAsleep && activity == .afterWaiting ? time - (last ?? time) : since(time)
        isAsleep = activity == .beforeWaiting
        last = time
    }

    private func since(_ time: Int64) -> Int64 { min(max(time - (last ?? time), 0), Self.most) }
}

/// The time that remains of the nearest timeout of a transfer.
enum RemainingTime {
    case expired(HTTPError.Timeout)
    case after(Duration)
    case never
}

/// The timeouts of one transfer, in nanoseconds of its session's served time. Pure.
struct TransferTimeouts {
    private let beginning: Int64
    var lastActivity: Int64 = 0
    /// Where the timeout began that passes unless the current pass of the loop brings bytes.
    private var overdueStart: Int64?

    init(since beginning: Int64) { self.beginning = beginning }

    mutating func next(
        at now: Int64, in state: RunningTransfer.State, waitsForClient: Bool,
        _ configuration: HTTPSession.Configuration
    ) -> RemainingTime {
        var nearest: (rest: Int64, timeout: HTTPError.Timeout, start: Int64)?
        func note(_ limit: Duration?, since start: Int64, _ timeout: HTTPError.Timeout) {
            guard let limit else { return }
            let rest = limit.wholeNanoseconds - (now - start)
            if rest < nearest?.rest ?? .max { nearest = (rest, timeout, start) }
        }
        note(configuration.totalTimeout, since: beginning, .total)
        switch state {
        case .connecting(let start): note(configuration.connectTimeout, since: start, .connect)
        case .transferring:
            // A consumer may let the transfer continue at any time: the timeout begins then.
            if waitsForClient { lastActivity = now }
            note(configuration.idleTimeout, since: lastActivity, .idle)
        case .queued, .held, .admitted, .delayed, .finishing: break
        }
        guard let (rest, timeout, start) = nearest else { return .never }
        if rest > 0 { return .after(.nanoseconds(rest)) }
        // If the process had no processor, what has arrived meanwhile is received after the pass's timers.
        if timeout != .total, overdueStart != start {
            overdueStart = start
            return .after(.zero)
        }
        return .expired(timeout)
    }
}

/// The clock of a session's timeouts, and the timer that checks them. In the loop only while it is needed.
final class TimeoutWatch {
    private let runLoop: RunLoop
    private let modes: [RunLoop.Mode]
    private var served = ServedTime()
    private var observers: [RunLoop.Observer] = []
    private var timer: Timer?
    /// Served time, in nanoseconds, when the current callback began.
    private(set) var now: Int64 = 0

    /// Called when a timeout may have passed.
    var check: (() -> Void)?

    init(_ runLoop: RunLoop, _ modes: [RunLoop.Mode]) {
        self.runLoop = runLoop
        self.modes = modes
    }

    func noteTime() {
        if timer != nil { now = served.elapsed(at: Deadline.now.uptimeNanoseconds) }
    }

    /// Schedules a check of the timeouts after `duration`, before which none can have passed.
    func expect(_ duration: Duration?) {
        guard let duration else { return }
        let date = Deadline.now + duration
        if let timer, date < timer.fireDate { timer.fireDate = date }
    }

    /// Begins to measure, unless it does.
    func start() {
        guard timer == nil else { return }
        observers = [observe(.beforeWaiting, .max), observe([.entry, .beforeTimers, .afterWaiting], .min)]
        let timer = Timer.scheduled(every: .seconds(1 << 31), forMode: modes[0]) { [weak self] timer in
            timer.fireDate = .distantFuture
            self?.check?()
        }
        timer.fireDate = .distantFuture
        for mode in modes.dropFirst() { runLoop.add(timer, forMode: mode) }
        served.note(.beforeTimers, at: Deadline.now.uptimeNanoseconds)
        self.timer = timer
        noteTime()
    }

    private func observe(_ activities: RunLoop.Activities, _ order: Int) -> RunLoop.Observer {
        let observer = RunLoop.Observer(for: activities, order: order) { [weak self] _, activity in
            self?.served.note(activity, at: Deadline.now.uptimeNanoseconds)
        }
        for mode in modes { runLoop.add(observer, forMode: mode) }
        return observer
    }

    func stop() {
        for observer in observers { observer.invalidate() }
        observers = []
        timer.take()?.invalidate()
    }
}
