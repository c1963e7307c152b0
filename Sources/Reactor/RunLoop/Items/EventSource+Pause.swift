// A source that has something to do later. The timer is in the modes that the source is in.

extension EventSource {
    /// What the kernel is to watch the descriptor for now.
    final var armedInterest: Readiness { isDisarmed || isPaused ? [] : watchedInterest }

    /// Watches nothing for `duration`, because the descriptor stays ready and there is nothing to be done about it yet.
    /// Leaving the loop ends the pause.
    final func pause(for duration: Duration) {
        isPaused = loop != nil
        markReady(after: duration)
        updateWatches()
    }

    /// Marks the source ready after `duration`, instead of an earlier time. Leaving the loop ends that.
    final func markReady(after duration: Duration) {
        guard let loop else { return }
        let modes = Array(membership.entryModes(common: loop.commonModes).members)
        wakeTimer?.invalidate()
        wakeTimer = loop.perform(after: duration, inModes: modes) { [weak self] in self?.wake() }
    }

    private final func wake() {
        cancelWake()
        updateWatches()
        markReady()
    }

    /// Ends ``pause(for:)`` and ``markReady(after:)``.
    final func cancelWake() {
        isPaused = false
        wakeTimer.take()?.invalidate()
    }

    final func didJoin(_ mode: RunLoop.Mode) {
        if let wakeTimer { loop?.add(wakeTimer, forMode: mode) }
        joined(mode)
    }

    final func didLeave(_ mode: RunLoop.Mode) {
        if let wakeTimer { loop?.remove(wakeTimer, forMode: mode) }
        left(mode)
    }
}
