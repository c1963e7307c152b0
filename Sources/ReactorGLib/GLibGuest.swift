import CReactorGLib
public import Reactor
import SystemPackage

extension RunLoop {
    /// Runs a GLib main context inside this loop, while the loop runs in one of `modes`.
    ///
    /// ```swift
    /// try RunLoop.main.addGLibContext()
    /// g_timeout_add(500, { _ in blink() }, nil)
    /// RunLoop.main.run()
    /// ```
    /// Timeouts, idle functions, child watches, descriptors and whatever else GLib code attaches to the context are
    /// dispatched on the loop's thread, once in a pass at most, after what is ready of the loop's own. In another mode they
    /// wait. A callback may run this loop, or a GLib main loop of the context: GLib does not call it again meanwhile.
    ///
    /// The loop's thread owns the context until the guest ends, so that `g_main_context_invoke` of other threads calls on
    /// this one. A mode with a guest is not empty. If another event loop hosts this one, code of the host on this thread
    /// calls `RunLoop.wakeUp()` after it has attached something to the context.
    ///
    /// - Parameters:
    ///   - context: A `GMainContext *`; nil for the default one.
    ///   - modes: The modes to be served in.
    /// - Returns: The guest, which the loop keeps: ending it is optional.
    /// - Throws: `IOError` with `Errno.resourceBusy` if another thread owns the context; or what making descriptors does.
    /// - Precondition: Called on the loop's own thread, and there is a mode.
    @discardableResult
    public func addGLibContext(
        _ context: OpaquePointer? = nil, inModes modes: [Mode] = [.default]
    ) throws(IOError) -> GLibGuest {
        requireCurrent("RunLoop.addGLibContext(_:inModes:) must be called")
        precondition(
            !modes.isEmpty, "RunLoop.addGLibContext(_:inModes:) needs a mode: in none, nothing is served.")
        return try attempt(.start, "serving of a GLib context") { () throws(Errno) in
            let context = try GuestContext(unsafe MainContext(context), in: self, modes)
            return GLibGuest(try context.begin())
        }
    }
}

/// A GLib main context inside a run loop: see `RunLoop.addGLibContext(_:inModes:)`.
///
/// It ends with ``end()`` or with the loop's thread, and belongs to that thread. Releasing it does not end it.
public final class GLibGuest {
    /// Retains the context while it is valid.
    private let observer: RunLoop.Observer

    fileprivate init(_ observer: RunLoop.Observer) { self.observer = observer }

    /// Whether the loop runs the context.
    ///
    /// - Precondition: Called on the loop's thread.
    public var isValid: Bool { observer.isValid }

    /// Ends the guest. The loop's thread then does not own the context any more. A callback of the context may call this: the
    /// others of its round are called yet.
    ///
    /// - Precondition: Called on the loop's thread.
    public func end() { observer.invalidate() }
}

/// Drives the context by GLib's protocol: prepare, query, check, dispatch.
///
/// The observer of the waits retains this; so does a round. It owns the context, and releases it at the end.
private final class GuestContext {
    private let context: MainContext
    private let loop: RunLoop
    private let modes: [RunLoop.Mode]
    private var descriptors: PolledDescriptors
    private var priority: gint = 0
    private var observer: RunLoop.Observer!
    /// Its handler reports that a descriptor is ready.
    private var source: DescriptorSource!
    private var timer: Timer!
    /// When the timer fires.
    private var date = Deadline.distantFuture
    private var isPosted = false
    /// Whether the descriptors and the priority are those of the next round.
    private var isPrepared = false
    /// Whether GLib calls the sources' own prepare and check functions, in which it must not be entered.
    private var isInGLib = false
    /// Whether a descriptor has been reported ready since the last round.
    private var isReported = false
    /// Whether this pass, or the last one, has come to its wait. One that only polls does not.
    private var hasReachedWait = false

    init(_ context: MainContext, in loop: RunLoop, _ modes: [RunLoop.Mode]) throws(Errno) {
        descriptors = try PolledDescriptors()
        guard context.acquire() else { throw .resourceBusy }
        self.context = context
        self.loop = loop
        self.modes = modes
    }

    deinit {
        end()
        context.release()
    }

    private var isValid: Bool { observer.isValid }

    /// Registers everything in the loop, or nothing.
    ///
    /// - Returns: The observer. Invalidating it ends the guest.
    func begin() throws(Errno) -> RunLoop.Observer {
        source = try watch(descriptors.descriptor)
        let never = Duration.seconds(1 << 32)
        timer = Timer.scheduled(every: never, forMode: modes[0]) { [unowned self] _ in timerFired() }
        // The last one: other observers may add to the context.
        observer = RunLoop.Observer(for: [.beforeTimers, .beforeWaiting], order: .max) { [self] _, activity in
            reached(activity)
        }
        for mode in modes {
            loop.add(timer, forMode: mode)
            loop.add(observer, forMode: mode)
        }
        return observer
    }

    private func end() {
        source?.cancel()
        timer?.invalidate()
        observer?.invalidate()
    }

    private func watch(_ descriptor: FileDescriptor) throws(Errno) -> DescriptorSource {
        let source = DescriptorSource(descriptor, for: .readable) { [unowned self] _, _ in
            isReported = true
            requestRound()
        }
        do throws(Errno) {
            for mode in modes { try loop.register(source, forMode: mode) }
        } catch {
            source.cancel()
            throw error
        }
        return source
    }

    // MARK: Before the wait

    private func reached(_ activity: RunLoop.Activities) {
        if activity == .beforeWaiting || !hasReachedWait { prepare() }
        hasReachedWait = activity == .beforeWaiting
    }

    /// Asks GLib what to wait for.
    private func prepare() {
        guard !isInGLib else { return }
        isInGLib = true
        let isReady = context.prepare(&priority)
        let timeout = descriptors.query(context, priority)
        isInGLib = false
        isPrepared = true
        guard isValid else { return }
        let limit = descriptors.watch(upTo: timeout)
        if isReady || limit == 0 { requestRound() } else { setTimer(limit) }
    }

    /// Requests a round at the end of this pass.
    ///
    /// It is a block, and not the handler of the source or of the timer, so that a run of the loop within a round has rounds.
    private func requestRound() {
        // A nested run of the loop, after a callback of this round has ended the guest.
        guard isValid else { return end() }
        guard !isPosted else { return }
        isPosted = true
        let guest = LoopOwned(self, on: loop)
        loop.perform(inModes: modes) { guest.value.runRound() }
    }

    /// - Parameter timeout: In milliseconds, rounded up; -1 for none.
    private func setTimer(_ timeout: gint) {
        let date =
            timeout < 0 ? .distantFuture : Deadline.now.advanced(by: .milliseconds(Int(timeout)))
        // GLib counts milliseconds: the same date differs from the last one by less. Setting the timer is a system call.
        let isSame =
            date == self.date || abs(date.uptimeNanoseconds - self.date.uptimeNanoseconds) < 1_000_000
        guard !isSame else { return }
        self.date = date
        timer.fireDate = date
    }

    private func timerFired() {
        date = .distantFuture
        requestRound()
    }

    // MARK: After the wait

    /// Dispatches what is ready.
    private func runRound() {
        isPosted = false
        guard isPrepared, isValid, !isInGLib else { return }
        isPrepared = false
        let isAnyReady = descriptors.poll()
        if isReported, !isAnyReady { replaceDescriptors() }
        isReported = false
        isInGLib = true
        let hasReady = descriptors.check(context, priority)
        isInGLib = false
        if hasReady { context.dispatch() }
    }

    /// Forgets a descriptor that GLib no longer watches, and that was closed before ``PolledDescriptors`` was told: while
    /// another descriptor has the same file open, epoll(7) keeps reporting it.
    private func replaceDescriptors() {
        // Without descriptors for that, the next round tries again.
        guard let new = try? PolledDescriptors(replacing: descriptors),
            let newSource = try? watch(new.descriptor)
        else { return }
        source.cancel()
        source = newSource
        descriptors = new
    }
}
