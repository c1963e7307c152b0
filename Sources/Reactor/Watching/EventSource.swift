import SystemPackage

/// Something that a run loop serves, on its thread, when a descriptor is ready: the superclass of ``DescriptorSource``,
/// ``SignalSource``, ``Listener`` and ``DatagramSocket``, and of nothing else.
///
/// A source is in modes of one loop, which keeps it alive meanwhile, and ends with that loop. A source and its loop
/// belong to one thread; every method traps on another.
public class EventSource: CustomStringConvertible {
    // What an event goes through comes first, and together.

    /// What the descriptor is watched for.
    final private(set) var watchedInterest: Readiness
    /// Whether the source is being served. It is not served again inside that, however deep the loop nests.
    final private(set) var isInCallout = false
    /// Whether the callout counts as handling a source; ``serve(_:)`` may say that it does not.
    final var isHandled = true
    /// Whether a callout has been asked for that the kernel knows nothing of.
    final private var isRaised = false
    final private var isOver = false
    /// Whether the kernel is not asked for as long as the callout lasts, because the descriptor became ready in
    /// a nested activation.
    final private var isDisarmed = false
    /// One for each mode that has run; none as long as there is nothing to record.
    final private var watches = SmallArray<Watch>() {
        didSet { hasSeveralWatches = watches.hasOthers }
    }
    final private var hasSeveralWatches = false
    /// Whether something waits for the callback's return.
    final private var isUnsettled = false
    final private(set) var number: CInt
    /// What closes the descriptor, if another thread may do that.
    final private(set) var holder: DescriptorHolder?
    final var membership = Membership()
    /// Where its loop has filed it.
    final var places = Places()
    /// The loop that it is in, which keeps it alive.
    final private(set) var loop: RunLoop?
    /// The source itself, if it may leave its loop's tables before its callback returns.
    final private var keeper: EventSource?

    /// - Parameter number: The descriptor; -1 for a source that has none yet.
    init(_ number: CInt, for interest: Readiness) {
        self.number = number
        watchedInterest = interest
    }

    deinit { for watch in watches { watch.end() } }

    // MARK: For subclasses

    /// Serves what the descriptor is ready for, or what was raised. Called on the loop's thread, never inside itself.
    func serve(_ readiness: Readiness) {}

    /// Releases what it holds: called once, when the source has been ended, but not during its callout.
    func ended() {}

    /// Called before the source joins a mode of a loop; it does not when this throws.
    func prepareToJoin() throws(Errno) {}

    func joined(_ mode: RunLoop.Mode) {}

    func left(_ mode: RunLoop.Mode) {}

    /// Called before the loop ends the source with itself.
    func loopEnded(_ loop: RunLoop) {}

    /// Whether a source that is served late asks the kernel first whether it is still ready.
    var confirmsLateReadiness: Bool { true }

    // MARK: Its state

    /// What the source waits for.
    public var description: String {
        guard isValid else { return "descriptor \(number) (cancelled)" }
        return "descriptor \(number): \(watchedInterest)\(isInCallout ? ", being called" : "")"
    }

    /// Whether the source can still be served.
    public final var isValid: Bool { !isOver }

    var interest: Readiness { watchedInterest }

    /// Changes what the descriptor is watched for, in all the source's modes; takes effect at once.
    func setInterest(_ interest: Readiness) throws(Errno) {
        loop?.assertCurrent()
        guard interest != watchedInterest else { return }
        if isWatched, !isDisarmed { try setInterestOfWatches(interest) }
        let before = watchedInterest
        watchedInterest = interest
        guard !isRegistered, !interest.isEmpty, let core = loop?.core else { return }
        do throws(Errno) { try core.update(self) } catch {
            watchedInterest = before
            throw error
        }
    }

    /// Takes the source out of its loop for good. It is not served after this.
    final func end() {
        loop?.assertCurrent()
        guard !isOver else { return }
        outliveCallback()
        isOver = true
        membership = Membership()
        if let core = loop?.core { core.updateLeniently(self) }
        endWatches(except: ModeSet())
        leave()
        if !isInCallout { ended() }
    }
}

// MARK: - In a loop

extension EventSource {
    private final var isWatched: Bool { !watches.isEmpty }

    /// Whether the kernel watches the descriptor for it, or does as soon as there is something to watch for.
    final var isRegistered: Bool { watches.contains { $0.hasPoller } }

    /// Whether it is in the mode that its loop runs in.
    final var isInRunningMode: Bool {
        guard let loop, let mode = loop.currentMode else { return false }
        return membership.contains(mode, common: loop.core.commonModes)
    }

    /// Joins `loop` unless the source is over or another's; true if it is `loop`'s now.
    final func join(_ loop: RunLoop) -> Bool {
        guard isValid, self.loop == nil || self.loop === loop else { return false }
        if self.loop == nil { self.loop = loop }
        return true
    }

    final func leave() { loop = nil }

    /// Takes another descriptor, of which nothing is watched yet.
    final func adopt(_ descriptor: DescriptorHolder) {
        holder = descriptor
        number = descriptor.number
        watchedInterest = []
        for watch in watches { watch.adopt(number, of: descriptor) }
    }

    /// Records what is ready in one more mode, or tries once more where a registration has failed. Where there is nothing
    /// to record, that is left until there is: then it is done in all modes. Without a poller only what is raised is
    /// recorded.
    final func watch(in state: ModeState) throws(Errno) {
        guard isWatched || isRaised || !watchedInterest.isEmpty else { return }
        let mode = state.mode.index
        let known = watches.first { $0.mode == mode }
        let watch = known ?? Watch(number, of: holder, for: self, mode: mode, in: state.ready)
        if let poller = state.poller { watch.use(poller) }
        try watch.setInterest(watchedInterest)
        guard known == nil else { return }
        watches.append(watch)
        if isRaised { watch.record(.raised) }
    }

    /// Ends the registrations in all modes but those of `kept`.
    final func endWatches(except kept: ModeSet) {
        watches.removeAll { watch in
            if kept.contains(RunLoop.Mode(watch.mode)) { return false }
            watch.end()
            return true
        }
    }

    private final func setInterestOfWatches(_ interest: Readiness) throws(Errno) {
        do throws(Errno) {
            for watch in watches { try watch.setInterest(interest) }
        } catch {
            for watch in watches { try? watch.setInterest(watchedInterest) }
            throw error
        }
        for watch in watches { watch.narrow(to: interest.union(.raised)) }
    }
}

// MARK: - Being served

extension EventSource {
    /// Has the source served in the next pass of any of its modes, as if the kernel had told.
    final func raise() {
        isRaised = true
        if !isWatched { loop?.core.watch(self) }
        for watch in watches { watch.record(.raised) }
    }

    /// Serves what a watch has recorded. Returns whether that has handled a source: whether a handler was called.
    @inline(always)
    final func serveRecorded(_ readiness: Readiness) -> Bool {
        if hasSeveralWatches { for watch in watches { _ = watch.takeReadiness() } }
        let readiness = readiness.intersection(watchedInterest.union(.raised))
        guard !isOver, !readiness.isEmpty else { return false }
        guard !isInCallout else {
            disarm(unless: readiness == .raised)
            return false
        }
        isRaised = false
        isHandled = true
        isInCallout = true
        serve(readiness)
        isInCallout = false
        let isHandled = isHandled
        if isUnsettled { settle() }
        return isHandled
    }

    /// Keeps the source until its callback has returned, as the loop may release it before.
    final func outliveCallback() {
        guard isInCallout else { return }
        keeper = self
        isUnsettled = true
    }

    /// Makes up for what had to wait for the callout's return.
    @inline(never)
    private final func settle() {
        let kept = keeper.take()
        isUnsettled = false
        if isDisarmed { rearm() }
        if isOver { ended() }
        withExtendedLifetime(kept) {}
    }

    /// Level-triggered and not answered while its callout is on the stack: it would keep a nested loop from
    /// sleeping.
    private final func disarm(unless isRaisedOnly: Bool) {
        isDisarmed = true
        isUnsettled = true
        if !isRaisedOnly { try? setInterestOfWatches([]) }
    }

    /// A registration that the kernel has no memory for is made by a later pass.
    private final func rearm() {
        isDisarmed = false
        if isRaised { raise() }
        do throws(Errno) { try setInterestOfWatches(watchedInterest) } catch {
            loop?.core.retryRegistrations()
        }
    }
}
