import Synchronization
import SystemPackage

/// A source that a run loop serves, on its thread, when a descriptor is ready: the superclass of ``DescriptorSource``,
/// ``SignalSource``, ``Listener``, ``DatagramSocket``, ``ProcessSource``, ``FileWatcher``, ``ClockTimer`` and
/// ``PressureSource``. Clients cannot subclass it.
///
/// A source belongs to one loop, which retains it, and ends it when the loop ends. A source in a loop belongs to the loop's
/// thread; every method but ``explain()`` traps on another.
public class EventSource: Watch, CustomStringConvertible {
    // The properties that every event uses come first, next to each other.
    //
    // `@exclusivity(unchecked)`: one thread uses these, and no access to one of them calls a client's code. The checks would
    // be an eighth of what a connection costs that opens and closes.

    /// What the descriptor is watched for.
    final private(set) var watchedInterest: Readiness
    /// Whether the source is being served. It is not served again meanwhile, however deep activations nest.
    final private(set) var isInCallback = false
    /// Whether the library itself has made the source ready; see ``markReady()``.
    final private(set) var isMarkedReady = false
    final private(set) var isEnded = false
    /// Whether nothing is watched until the callback returns, because the descriptor became ready in a nested activation.
    final private(set) var isDisarmed = false
    /// Whether nothing is watched until the end of ``pause(for:)``.
    final var isPaused = false
    /// What makes the source ready; see ``markReady(after:)``.
    final var wakeTimer: Timer?
    /// One for each further mode that has run.
    @safe @exclusivity(unchecked) final private var otherWatches: [Watch] = []
    /// Whether there is something to do when the callback has returned.
    final private var hasWorkAfterCallback = false
    /// The descriptor. It changes only in sources of the library's own, which no other thread can ask for their names.
    final private(set) var number: CInt
    /// What closes the descriptor, if another thread may do that.
    final private(set) var shared: SharedDescriptor?
    @safe @exclusivity(unchecked) final var membership = Membership()
    /// Where it is entered in its loop.
    @safe @exclusivity(unchecked) final var entries = ModeEntries()
    /// The loop that it is in, which retains it.
    @safe @exclusivity(unchecked) final private(set) var loop: RunLoop?
    /// The source itself, if its loop may release it before its callback returns.
    final private var keptAlive: EventSource?
    /// What the debug mode supervises in place of the source, while its modes have never run.
    final var supervised: (any Supervised)?
    /// What other threads know of the source: its name, and the loop to ask for the rest.
    final let identification: Mutex<Identification>

    struct Identification: Sendable {
        var name: ItemName?
        var loop: RunLoop?
        var isEnded = false
        /// Whether the end of its loop has ended the source.
        var hasLoopEnded = false
    }

    /// - Parameter number: The descriptor; -1 for a source that has none yet.
    init(_ number: CInt, for interest: Readiness, name: ItemName? = nil) {
        self.number = number
        watchedInterest = interest
        identification = Mutex(Identification(name: name))
        super.init(of: nil)
    }

    // MARK: For subclasses

    /// Serves what the descriptor is ready for, or ``markReady()``. Called on the loop's thread, never within itself.
    ///
    /// - Returns: Whether that counts as handling a source.
    func serve(_ readiness: Readiness) -> Bool { true }

    /// Releases what the source holds. Called once by ``cancel()``, also during the callback.
    func releaseResources() {}

    /// Called once, when the source has been ended, but not during its callback.
    func ended() {}

    /// Called before the source is added to a mode; it is not added if this throws.
    func prepareToJoin() throws(Errno) {}

    func joined(_ mode: RunLoop.Mode) {}

    func left(_ mode: RunLoop.Mode) {}

    /// Called before the loop ends the source with itself.
    func loopEnded(_ loop: RunLoop) {}

    /// Ends the source with its loop.
    final func endWithLoop(_ loop: RunLoop) {
        loopEnded(loop)
        identification.withLock { $0.hasLoopEnded = true }
        cancel()
    }

    /// What it serves, as an error names it.
    var subject: String { descriptorName(number) }

    /// What the source is. From any thread, as its title.
    var noun: String { "source of \(subject)" }

    /// The noun, or a common one where there may be very many sources: the ledger has an entry for each.
    var kind: String { noun }

    /// The noun with the label.
    var title: String { name.naming(noun) }

    /// What a dump of the loop says of the source.
    var dumpLine: String { name.naming(description) }

    /// The name of the handler in reports.
    var callTitle: String { title }

    /// The name of the source's entry in the ledger.
    var account: String { name.naming(kind) }

    /// Why the source has nothing to report, as a clause.
    var silence: String { readinessSilence }

    /// The same as the kernel sees it.
    final var readinessSilence: String {
        switch watchedInterest {
        case []: "its interest is empty"
        case [.readable, .writable]: "the descriptor is neither readable nor writable"
        case .readable, .writable: "the descriptor is not \(watchedInterest)"
        default: "the descriptor has reported none of: \(watchedInterest)"
        }
    }

    /// Whether the kernel is asked again before the source is served late.
    var confirmsLateReadiness: Bool { true }

    // MARK: Its state

    /// What dumps, ``LoopDiagnostics`` and explanations call the source; nil for none.
    public final var label: String? {
        get { name?.label }
        set {
            requireLoopThread()
            identification.withLock { $0.name = .relabel($0.name, newValue) }
        }
    }

    final var name: ItemName? { identification.withLock { $0.name } }

    /// What the source waits for, and whether it was cancelled.
    public final var description: String { summary }

    var summary: String {
        guard isValid else { return "\(descriptorName(number)) (cancelled)" }
        return "\(descriptorName(number)): \(watchedInterest)\(isInCallback ? ", being called" : "")"
    }

    /// Whether the source can still be served.
    public final var isValid: Bool {
        requireLoopThread()
        return !isEnded
    }

    package var interest: Readiness {
        requireLoopThread()
        return watchedInterest
    }

    /// Traps on another thread than the loop's, if the source is in a loop.
    final func requireLoopThread() { loop?.requireCurrent("A \(type(of: self)) must be used") }

    /// Changes what the descriptor is watched for in all the source's modes, with immediate effect.
    package func changeInterest(_ interest: Readiness) throws(Errno) {
        requireLoopThread()
        guard interest != watchedInterest else { return }
        if isWatched, !isDisarmed, !isPaused { try setInterestOfWatches(interest) }
        let before = watchedInterest
        watchedInterest = interest
        if LoopDiagnostics.isReporting, supervised != nil { superviseReadiness() }
        guard !hasPoller, !interest.isEmpty, let core = loop?.core else { return }
        do throws(Errno) { try core.update(self) } catch {
            watchedInterest = before
            throw error
        }
    }

    /// Removes the source from its loop permanently, and releases its closures and the descriptors that it owns. Its closures
    /// are not called again.
    ///
    /// A descriptor, a process or a file that is watched stays as it is. The last source of a signal restores the action that
    /// the signal had before: a handler may cancel its source, and raise the signal again to make that action happen. A
    /// listener or a datagram socket is closed.
    public final func cancel() {
        requireLoopThread()
        guard !isEnded else { return }
        outliveCallback()
        isEnded = true
        membership = Membership()
        endWatches()
        loop?.useCore { $0.remove(self) }
        leave()
        releaseResources()
        if !isInCallback { ended() }
    }
}

// MARK: - In a loop

extension EventSource {
    private final var isWatched: Bool { isWatching || !otherWatches.isEmpty }

    /// Whether there may be something to record.
    final var mayRecord: Bool { isWatched || isMarkedReady || !watchedInterest.isEmpty }

    /// Whether the kernel watches the descriptor, or will as soon as the source is interested in something.
    final var hasPoller: Bool { hasPollerInMode || otherWatches.contains { $0.hasPollerInMode } }

    /// Whether the kernel watches the descriptor, in any mode.
    final var isRegistered: Bool { isRegisteredInMode || otherWatches.contains { $0.isRegisteredInMode } }

    /// Whether it is in the mode that its loop runs in.
    final var isInRunningMode: Bool {
        guard let loop, let mode = loop.currentMode else { return false }
        return membership.contains(mode, common: loop.core.commonModes)
    }

    /// Joins `loop`, the calling thread's, unless the source has ended; true if it is in `loop` now.
    final func join(_ loop: RunLoop) -> Bool {
        guard isValid else { return false }
        if self.loop !== loop { enter(loop) }
        return true
    }

    final func leave() {
        cancelWake()
        enter(nil)
        supervised = nil
    }

    private final func enter(_ loop: RunLoop?) {
        self.loop = loop
        identification.withLock { ($0.loop, $0.isEnded) = (loop, isEnded) }
    }

    /// Switches to `descriptor`, and clears the interest.
    final func adopt(_ descriptor: SharedDescriptor) {
        shared = descriptor
        number = descriptor.number
        watchedInterest = []
        eachWatch { $0.endRegistrations() }
    }

    /// Begins to record what is ready in a mode, or retries a failed registration. While there is nothing to record this does
    /// nothing; later it is done in all modes. Without a poller only ``markReady()`` is recorded.
    final func watch(in state: ModeState) throws(Errno) {
        guard mayRecord else { return }
        let mode = state.mode.index
        var known: Watch?
        eachWatch { if $0.mode == mode { known = $0 } }
        let watch = known ?? (isWatching ? Watch(of: self) : self)
        if let poller = state.poller { watch.use(poller) }
        let interest = armedInterest
        do throws(Errno) {
            if known != nil || !interest.isEmpty { try watch.setInterest(interest, of: self) }
        } catch {
            if known == nil { watch.endWatch() }
            throw error
        }
        guard known == nil else { return }
        watch.begin(mode, in: state.ready)
        if watch !== self { otherWatches.append(watch) }
        if isMarkedReady { watch.record(.marked) }
    }

    /// Calls `body` with each watch.
    @inline(__always)
    private final func eachWatch<Failure>(_ body: (Watch) throws(Failure) -> Void) throws(Failure) {
        if isWatching { try body(self) }
        if !otherWatches.isEmpty { for watch in otherWatches { try body(watch) } }
    }

    private final func endWatches() { endWatches(except: ModeSet()) }

    /// Ends the registrations in all modes but those of `kept`.
    final func endWatches(except kept: ModeSet) {
        eachWatch { if !kept.contains(RunLoop.Mode($0.mode)) { $0.endWatch() } }
        if !otherWatches.isEmpty { otherWatches.removeAll { !$0.isWatching } }
    }

    private final func setInterestOfWatches(_ interest: Readiness) throws(Errno) {
        do throws(Errno) {
            try eachWatch { (watch) throws(Errno) in try watch.setInterest(interest, of: self) }
        } catch {
            eachWatch { try? $0.setInterest(armedInterest, of: self) }
            throw error
        }
        eachWatch { $0.narrow(to: interest.union(.marked)) }
    }
}

// MARK: - Being served

extension EventSource {
    /// Marks the source ready without the kernel: the next pass in any of its modes serves it.
    final func markReady() {
        isMarkedReady = true
        guard loop != nil else { return }
        if !isWatched { loop!.useCore { $0.watch(self) } }
        eachWatch { $0.record(.marked) }
        // Counts no references.
        unsafe Unmanaged.passUnretained(loop!)._withUnsafeGuaranteedRef { $0.inbox.wakeIfHosted() }
    }

    /// Serves what a watch has recorded, and returns whether that counts as handling a source.
    @inline(always)
    final func serveRecorded(_ readiness: Readiness, reportedAt: Poll) -> Bool {
        if !otherWatches.isEmpty { eachWatch { _ = $0.takeReadiness() } }
        let readiness = readiness.intersection(watchedInterest.union(.marked))
        guard !isEnded, !readiness.isEmpty else { return false }
        guard !isInCallback else {
            disarm(unless: readiness == .marked)
            return false
        }
        isMarkedReady = false
        self.reportedAt = reportedAt
        isInCallback = true
        let isHandled = serve(readiness)
        isInCallback = false
        if hasWorkAfterCallback { finishCallback() }
        return isHandled
    }

    /// Keeps the source alive until its callback has returned, because the loop may release it before.
    final func outliveCallback() {
        guard isInCallback else { return }
        keptAlive = self
        hasWorkAfterCallback = true
    }

    /// Does what had to wait until the callback returned.
    @inline(never)
    private final func finishCallback() {
        let kept = keptAlive.take()
        hasWorkAfterCallback = false
        if isDisarmed { rearm() }
        if isEnded { ended() }
        withExtendedLifetime(kept) {}
    }

    /// Stops watching until the callback returns: the registration is level-triggered, and would keep a nested activation
    /// from sleeping.
    private final func disarm(unless isMarkedOnly: Bool) {
        isDisarmed = true
        hasWorkAfterCallback = true
        if !isMarkedOnly { updateWatches() }
    }

    private final func rearm() {
        isDisarmed = false
        if isMarkedReady { markReady() }
        updateWatches()
    }

    /// Watches what ``armedInterest`` says. If the kernel has no memory for the registration, a later pass makes it.
    final func updateWatches() {
        do throws(Errno) { try setInterestOfWatches(armedInterest) } catch {
            loop?.core.retryRegistrations()
        }
    }
}
