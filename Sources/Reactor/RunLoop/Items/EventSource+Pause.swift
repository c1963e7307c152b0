// A source whose descriptor stays ready, though there is nothing to be done about it yet, pauses: the loop watches it again after
// a while. The pause is in the modes that the source is in.

extension EventSource {
    /// Whether the source waits for the end of ``pause(for:)``.
    final var isPaused: Bool { pauseTimer != nil }

    /// What the kernel is to watch the descriptor for now.
    final var armedInterest: Readiness { isDisarmed || isPaused ? [] : watchedInterest }

    /// Watches nothing for `duration`. Leaving the loop ends the pause.
    final func pause(for duration: Duration) {
        guard let loop else { return }
        let modes = Array(membership.entryModes(common: loop.commonModes).members)
        let timer = loop.perform(after: duration, inModes: modes) { [weak self] in
            self?.endPause()
            self?.updateWatches()
        }
        endPause()
        pauseTimer = timer
        updateWatches()
    }

    final func endPause() { pauseTimer.take()?.invalidate() }

    final func didJoin(_ mode: RunLoop.Mode) {
        if let pauseTimer { loop?.add(pauseTimer, forMode: mode) }
        joined(mode)
    }

    final func didLeave(_ mode: RunLoop.Mode) {
        if let pauseTimer { loop?.remove(pauseTimer, forMode: mode) }
        left(mode)
    }
}
