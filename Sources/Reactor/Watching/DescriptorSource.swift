import Glibc
public import SystemPackage

/// Calls a closure on a run loop's thread while a descriptor is ready to be read or written.
///
/// Any descriptor that epoll(7) takes can be watched: sockets, pipes, FIFOs, terminals, eventfds, timerfds,
/// other epolls. Adding one that it does not take, such as a regular file's, throws `Errno.notPermitted`:
/// open such a file as a stream.
///
/// The handler is called once in a pass of the loop for as long as the descriptor stays ready, so it should
/// read or write, or change its ``interest``, or ``cancel()``. It is not called again within its own callout,
/// however deep the loop nests. The closure may capture what it likes: it is called and destroyed on the
/// loop's thread.
///
/// Use a non-blocking descriptor (`O_NONBLOCK`) and expect `Errno.wouldBlock` wherever other code may read or write it too:
/// readiness is what the kernel has said last, and another handler of the same pass may have used it up. Where an
/// activation ends before everything that was ready has been served, as `run(mode:before:)` does, the next one asks the
/// kernel again before it calls a handler for what was left over.
///
/// The source does not own the descriptor: cancel first, then close. A source and its loop belong to one
/// thread; every method traps on another.
///
/// ```swift
/// let source = DescriptorSource(.standardInput, for: .readable) { source, _ in
///     var byte: UInt8 = 0
///     let count = withUnsafeMutableBytes(of: &byte) { try? FileDescriptor.standardInput.read(into: $0) }
///     if count == nil || count == 0 { source.cancel() }
/// }
/// try RunLoop.current.add(source, forMode: .default)
/// ```
public final class DescriptorSource {
    /// The descriptor that is watched.
    public var descriptor: FileDescriptor { FileDescriptor(rawValue: number) }

    /// What the descriptor is watched for.
    public var interest: Readiness { wanted }

    /// Whether the source can still call its handler.
    public var isValid: Bool { !isOver }

    // What an event goes through comes first, and together.

    /// Whom to call. It does not change while a callout is under way, so that a callout need not retain it. That,
    /// and that one thread uses it, is why accesses need no check.
    @exclusivity(unchecked) private var callee: Callee
    private var wanted: Readiness
    private var isInCallout = false
    /// Whether the callout counts as handling a source; a handler of this module's own may say that it does
    /// not.
    var isHandled = true
    /// Whether somebody has asked for a callout that the kernel knows nothing of.
    private var isRaised = false
    /// Whether it has been cancelled.
    private var isOver = false
    /// Whether the kernel is not asked for as long as the callout lasts, because the descriptor became ready in
    /// a nested activation.
    private var isDisarmed = false
    /// Whether it has retained itself, in a callout in which a roster has let go of it.
    private var isRetained = false
    /// The registrations, one for each mode that has run; none as long as there is nothing to register.
    private var watches = WatchList()
    private var number: CInt
    var membership = Membership()
    /// Where it is in the rosters of the groups that it is filed in.
    var places = Roster.Places()
    fileprivate var joined: RunLoop?
    var loop: RunLoop? { joined }

    /// Makes a source; it does nothing until it is added to a loop.
    ///
    /// - Parameters:
    ///   - descriptor: An open descriptor, which must stay open until the source is cancelled.
    ///   - interest: What to watch for; empty means nothing yet.
    ///   - handler: Called with the source and what the descriptor is ready for. An error or a hang-up
    ///     counts as both.
    /// - Precondition: `descriptor` is not negative.
    public init(
        _ descriptor: FileDescriptor, for interest: Readiness,
        handler: @escaping (DescriptorSource, Readiness) -> Void
    ) {
        precondition(descriptor.rawValue >= 0, "a descriptor source needs an open descriptor")
        unsafe callee = .handler(handler)
        wanted = interest
        number = descriptor.rawValue
    }

    /// Makes a source that has no descriptor yet, and calls its owner, which it keeps alive until it is
    /// cancelled.
    init(ownedBy owner: any DescriptorSourceOwner) {
        unsafe callee = .owner(owner)
        wanted = []
        number = -1
    }

    /// Changes what the descriptor is watched for, in all the source's modes; takes effect at once.
    ///
    /// - Throws: What epoll_ctl(2) does: `Errno.badFileDescriptor` if the descriptor has been closed,
    ///   `Errno.noMemory`, …
    public func setInterest(_ interest: Readiness) throws(Errno) {
        loop?.assertCurrent()
        guard interest != wanted else { return }
        if isWatched, !isDisarmed { try setWatchedInterest(interest) }
        let before = wanted
        wanted = interest
        guard !isWatched, !interest.isEmpty, let core = loop?.core else { return }
        do throws(Errno) { try core.file(self) } catch {
            wanted = before
            throw error
        }
    }

    /// Takes the source out of its loop for good and lets go of its closure. No callout begins after this.
    public func cancel() {
        loop?.assertCurrent()
        isOver = true
        membership = Membership()
        if let core = loop?.core { core.takeFromRosters(self, places.groups) }
        cancelWatches(except: ModeSet())
        joined = nil
        if !isInCallout { forgetCallee() }
    }

    private func forgetCallee() {
        var forgotten = Callee.nobody
        unsafe swap(&forgotten, &callee)
        _ = consume forgotten
    }

    deinit { cancelWatches(except: ModeSet()) }
}

extension DescriptorSource {
    /// Whom a source calls. It cannot be copied: a call borrows it, where it would retain a copy.
    private enum Callee: ~Copyable {
        case handler((DescriptorSource, Readiness) -> Void)
        case owner(any DescriptorSourceOwner)
        case nobody
    }

    /// Who is called in a handler's place.
    var owner: (any DescriptorSourceOwner)? {
        switch unsafe callee {
        case .owner(let owner): isOver ? nil : owner
        case .handler: nil
        case .nobody: nil
        }
    }
}

// MARK: - In a loop

extension DescriptorSource {
    var isCalling: Bool { isInCallout }

    var isWatched: Bool { !watches.isEmpty }

    /// Joins `loop` unless the source is over or another's; true if it is `loop`'s now.
    func join(_ loop: RunLoop) -> Bool {
        guard isValid, joined == nil || joined === loop else { return false }
        joined = loop
        return true
    }

    func leave() { joined = nil }

    /// Takes another descriptor, of which nothing is watched yet.
    func adopt(_ descriptor: FileDescriptor) {
        number = descriptor.rawValue
        wanted = []
        for watch in watches { watch.adopt(number) }
    }

    /// Registers the descriptor in one more poller, or once more where a change has failed. Where there is nothing
    /// to be told of, that is left until there is: then it is done in all pollers.
    func watch(on poller: Poller) throws(Errno) {
        guard isWatched || isRaised || !wanted.isEmpty else { return }
        if let known = watches.first(where: { $0.poller.isSame(as: poller) }) {
            return try known.setInterest(wanted)
        }
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        let watch = unsafe Watch(
            number, on: poller, context: context, hasRoom: !wanted.isEmpty, isConfirmed: owner == nil)
        do throws(Errno) { try watch.setInterest(wanted) } catch {
            watch.free()
            throw error
        }
        watches.insert(watch)
        if isRaised { watch.record(.raised) }
    }

    /// Ends the registrations in all pollers but those of `kept`.
    func cancelWatches(except kept: ModeSet) {
        watches = watches.freeing { !kept.contains(RunLoop.Mode($0.poller.number)) }
    }

    private func setWatchedInterest(_ interest: Readiness) throws(Errno) {
        for watch in watches {
            try watch.setInterest(interest)
            watch.narrow(to: interest.union(.raised))
        }
    }
}

// MARK: - Being served

extension DescriptorSource {
    /// Has the handler called in the next pass of any of the source's modes, as if the kernel had told.
    func raise() {
        isRaised = true
        if !isWatched { loop?.core.watch(self) }
        for watch in watches { watch.record(.raised) }
    }

    /// Serves what `watch` has recorded. Returns whether that has handled a source: whether anybody was called.
    ///
    /// A source that is watched is in a roster, which keeps it alive: nothing needs to be retained.
    @inline(always)
    static func serve(_ watch: Watch) -> Bool {
        let readiness = watch.takeReadiness()
        guard !readiness.isEmpty else { return false }
        let source = unsafe Unmanaged<DescriptorSource>.fromOpaque(watch.context)
        return unsafe source._withUnsafeGuaranteedRef { $0.serve(readiness, of: watch) }
    }

    /// Keeps itself alive until its callout, if there is one, has returned.
    func outliveCallout() {
        guard isInCallout, !isRetained else { return }
        isRetained = true
        _ = unsafe Unmanaged.passRetained(self)
    }

    @inline(always)
    private func serve(_ readiness: Readiness, of watch: Watch) -> Bool {
        if !watches.isOnly(watch) { for other in watches { _ = other.takeReadiness() } }
        let readiness = readiness.intersection(wanted.union(.raised))
        guard !isOver, !readiness.isEmpty else { return false }
        guard !isInCallout else {
            disarm(unless: readiness == .raised)
            return false
        }
        isRaised = false
        isHandled = true
        isInCallout = true
        switch unsafe callee {
        case .handler(let handler): handler(self, readiness)
        case .owner(let owner): owner.serve(self, readiness)
        case .nobody: break
        }
        isInCallout = false
        let isHandled = isHandled
        if isOver || isDisarmed || isRetained { settle() }
        return isHandled
    }

    /// Makes up for what had to wait for the callout's return.
    @inline(never)
    private func settle() {
        if isDisarmed { rearm() }
        if isOver { forgetCallee() }
        guard isRetained else { return }
        isRetained = false
        unsafe Unmanaged.passUnretained(self).release()
    }

    /// Level-triggered and not answered while its callout is on the stack: it would keep a nested loop from
    /// sleeping.
    private func disarm(unless isRaisedOnly: Bool) {
        isDisarmed = true
        if !isRaisedOnly { try? setWatchedInterest([]) }
    }

    /// A registration that the kernel has no memory for is made by a later pass.
    private func rearm() {
        isDisarmed = false
        if isRaised { raise() }
        do throws(Errno) { try setWatchedInterest(wanted) } catch { loop?.core.noteLackingWatches() }
    }
}
