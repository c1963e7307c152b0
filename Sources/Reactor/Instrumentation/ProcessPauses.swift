/// Intervals in which the process was stopped or starved, inferred from a thread that overslept. When in the thread's sleep
/// that began is not known, so all of the sleep counts. Pure: the times are nanoseconds of one clock.
struct ProcessPauses {
    /// In order, the latest last.
    private var recent: [Range<Int64>] = []
    /// From when until when the thread is to sleep; nil while it is awake.
    private var sleep: Range<Int64>?

    /// Longer than normal scheduling delay, too short to make a fast callback look slow.
    static var shortest: Int64 { 50_000_000 }

    /// A callback may last for hours, but a process is not stopped often.
    static var mostPauses: Int { 100 }

    mutating func beginSleep(_ sleep: Range<Int64>) { self.sleep = sleep }

    mutating func endSleep(at now: Int64) {
        if let pause = currentPause(at: now) { recent.append(pause) }
        if recent.count > Self.mostPauses { recent.removeFirst() }
        sleep = nil
    }

    /// How much of an interval up to now the process did not run.
    func time(from start: Int64, to now: Int64) -> Int64 {
        let pauses = currentPause(at: now).map { recent + [$0] } ?? recent
        return pauses.reduce(0) { $0 + max(0, $1.upperBound - max($1.lowerBound, start)) }
    }

    /// The pause that the thread has not seen the end of.
    private func currentPause(at now: Int64) -> Range<Int64>? {
        guard let sleep, now - sleep.upperBound > Self.shortest else { return nil }
        return sleep.lowerBound..<now
    }
}
