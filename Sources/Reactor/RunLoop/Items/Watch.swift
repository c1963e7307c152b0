import CReactorLinux
import Glibc
import SystemPackage

/// The readiness of one source in one mode, and its registrations with the kernel.
///
/// Reading and writing are registered apart, so that changing one of them is one system call; the end of the peer by an
/// epoll(7) of its own. What the library itself has marked ready is recorded here as well, which needs no registration, and no
/// poller.
///
/// A source is its own watch in the first mode, and has another one for each further mode.
///
/// `@safe`: the source is only used while something is recorded, and then it is alive; see `source`.
@safe
@_documentation(visibility: internal)
public class Watch {
    /// Set by `init`. Proof: the source ends its watches with itself, and each of them when it leaves their mode. So a source
    /// that is to be served is in the loop's tables, which retain it; and before it is taken out of them within its callback,
    /// it retains itself until that has returned (``EventSource/outliveCallback()``). An event counts no references.
    final private var owner: Unmanaged<EventSource>?
    /// Nil while there is nothing to record. Proof: the loop owns its modes' queues, and ends its sources before.
    final private var queue: Unmanaged<ReadyQueue>?
    /// The mode's number.
    final private(set) var mode: Int32 = -1
    /// What was recorded and has not been served yet. While it is not empty the watch is in the queue.
    final fileprivate var readiness: Readiness = []
    // Links of ``ReadyQueue``.
    final fileprivate var isQueued = false
    /// The round of serving in which it was queued.
    final fileprivate var round: UInt32 = 0
    final fileprivate var previous: ReadyQueue.Link?
    final fileprivate var next: ReadyQueue.Link?
    /// The poll in which the kernel has reported what was recorded last, or is being served.
    final var reportedAt = Poll.unknown
    /// Nil while the loop has no descriptors for one: then only what is marked is recorded.
    final fileprivate var poller: Poller?
    /// Unchecked, because one thread uses them, and no access to one calls a client's code.
    @safe @exclusivity(unchecked) final private var reading: Registration?
    @safe @exclusivity(unchecked) final private var writing: Registration?
    @safe @exclusivity(unchecked) final private var peerWatch: PeerWatch?

    /// - Parameter source: The source in another mode; nil for the source itself.
    init(of source: EventSource?) {
        unsafe owner = .passUnretained(source ?? unsafeDowncast(self, to: EventSource.self))
    }

    deinit { leaveQueue() }

    fileprivate final var source: Unmanaged<EventSource> { unsafe owner.unsafelyUnwrapped }

    private final func leaveQueue() {
        unsafe queue?._withUnsafeGuaranteedRef { $0.remove(ReadyQueue.Link(self)) }
    }

    /// Begins to record for a mode.
    final func begin(_ mode: Int32, in queue: ReadyQueue) {
        self.mode = mode
        unsafe self.queue = .passUnretained(queue)
    }

    /// Whether there may be something to record.
    final var isWatching: Bool { unsafe queue != nil }

    /// Ends the registrations and drops what was recorded, at once, though the watch may be being served.
    final func endWatch() {
        endRegistrations()
        readiness = []
        leaveQueue()
        unsafe queue = nil
        poller = nil
    }

    // MARK: What is watched

    final fileprivate var descriptor: CInt { unsafe source._withUnsafeGuaranteedRef { $0.number } }

    /// Ends all registrations, before the source changes its descriptor.
    final func endRegistrations() {
        reading = nil
        writing = nil
        peerWatch = nil
    }

    final var hasPollerInMode: Bool { poller != nil }

    /// Whether the kernel watches the descriptor.
    final var isRegisteredInMode: Bool { reading != nil || writing != nil }

    final func use(_ poller: Poller) { self.poller = poller }

    /// Makes `interest` what the kernel watches for. On an error nothing that was watched before is lost.
    ///
    /// - Parameter source: The watch's.
    final func setInterest(_ interest: Readiness, of source: EventSource) throws(Errno) {
        guard let poller else { return }
        if peerWatch != nil || interest.contains(.peerEnded) {
            try setInterestWithPeer(interest, of: source, on: poller)
        } else {
            try setTransfers(interest, of: source, on: poller)
        }
    }

    @inline(__always)
    final private func setTransfers(_ interest: Readiness, of source: EventSource, on poller: Poller)
        throws(Errno)
    {
        // New ones first: if that fails, the old ones remain.
        let isReadingNew = interest.contains(.readable) && reading == nil
        if isReadingNew { reading = try register(source, for: .readable, on: poller) }
        if interest.contains(.writable), writing == nil {
            do throws(Errno) { writing = try register(source, for: .writable, on: poller) } catch {
                if isReadingNew { reading = nil }
                throw error
            }
        }
        if !interest.contains(.readable) { reading = nil }
        if !interest.contains(.writable) { writing = nil }
    }

    @inline(never)
    final private func setInterestWithPeer(_ interest: Readiness, of source: EventSource, on poller: Poller)
        throws(Errno)
    {
        let isNew = peerWatch == nil
        if isNew { peerWatch = try PeerWatch(source.number, on: poller, of: self) }
        do throws(Errno) { try setTransfers(interest, of: source, on: poller) } catch {
            if isNew { peerWatch = nil }
            throw error
        }
        if !interest.contains(.peerEnded) { peerWatch = nil }
    }

    final private func register(
        _ source: EventSource, for interest: Readiness, on poller: Poller
    ) throws(Errno) -> Registration {
        try unsafe poller.register(
            source.number, of: source.shared, for: interest, recordReadiness, context: self)
    }

    // MARK: What is ready

    /// Keeps `readiness` for the loop to serve.
    @inline(__always)
    final func record(_ readiness: Readiness) {
        self.readiness.formUnion(readiness)
        unsafe queue?._withUnsafeGuaranteedRef { $0.append(ReadyQueue.Link(self)) }
    }

    /// Keeps only what is still wanted of what was recorded.
    final func narrow(to interest: Readiness) { readiness.formIntersection(interest) }

    /// Polls the descriptor again and discards stale readiness, if the source asks for that.
    @inline(never)
    final func confirm() {
        guard unsafe source.takeUnretainedValue().confirmsLateReadiness, readiness != .marked else { return }
        guard let events = try? SystemCall.poll(descriptor, for: readiness.pollEvents) else { return }
        narrow(to: Readiness(poll: events).union(.marked))
    }

    /// Returns what was recorded, and clears it.
    final func takeReadiness() -> Readiness {
        let taken = readiness
        readiness = []
        return taken
    }
}

/// Watches a descriptor for the end of its peer, by an epoll(7) that the mode's watches.
///
/// libevent has an event for that, `EV_CLOSED`, which it does not report with an error or a hang-up: the loop would spin.
private final class PeerWatch {
    private let epoll: OwnedDescriptor
    /// Ends before the epoll is closed.
    private var registration: Registration?

    init(_ descriptor: CInt, on poller: Poller, of watch: Watch) throws(Errno) {
        epoll = try OwnedDescriptor.epoll()
        try SystemCall.control(epoll.number, EPOLL_CTL_ADD, descriptor, for: EPOLLRDHUP.rawValue)
        registration = try unsafe poller.register(
            epoll.number, of: nil, for: .readable, recordEndOfPeer, context: watch)
    }

    deinit { registration = nil }
}

/// libevent's callback: it records, and leaves the serving to the loop.
@inline(__always)
private func recordReadiness(_: CInt, _ events: Int16, _ context: UnsafeMutableRawPointer?) {
    unsafe CallbackContext.borrow(context) { (watch: Watch) in
        watch.reportedAt = watch.poller?.lastPoll ?? .unknown
        watch.record(Readiness(libevent: events))
    }
}

private func recordEndOfPeer(_: CInt, _: Int16, _ context: UnsafeMutableRawPointer?) {
    unsafe CallbackContext.borrow(context) { (watch: Watch) in
        watch.reportedAt = watch.poller?.lastPoll ?? .unknown
        watch.record(.peerEnded)
    }
}

/// The watches of one mode that wait to be served, in order.
///
/// The queue runs through the watches themselves, both ways: a running loop does not allocate, and a watch
/// that ends leaves at once. Serving goes by rounds: what is recorded during one is served in the next, after
/// the kernel has been asked again, so that nothing that keeps itself ready keeps others waiting.
final class ReadyQueue {
    /// A watch in the queue, not retained: reference counting would dominate the cost of an event.
    ///
    /// `@safe` is right because `Watch.deinit` removes the watch from the queue, so no link in the queue dangles, and
    /// because a link that ``takeFirst(before:)`` returns is used up by ``serve()``, which reads it before any client
    /// code runs.
    @safe
    @dynamicMemberLookup
    struct Link {
        @safe private unowned(unsafe) let watch: Watch

        fileprivate init(_ watch: Watch) { self.watch = watch }

        /// One property at a time: a reference that outlasts one access is counted.
        subscript<Value>(dynamicMember property: ReferenceWritableKeyPath<Watch, Value>) -> Value {
            @inline(__always) get { watch[keyPath: property] }
            @inline(__always) nonmutating set { watch[keyPath: property] = newValue }
        }

        func confirm() { watch.confirm() }

        /// What the loop calls when it serves the watch.
        var callbackKind: CallbackKind {
            CallbackKind(descriptor: watch.descriptor)
        }

        /// The watch has recorded something, so that its source is alive: see ``Watch/source``.
        @inline(never)
        func push(to meter: LoopMeter) {
            let source = unsafe watch.source.takeUnretainedValue()
            meter.push(source.callTitle, account: source.account, mayHaveWoken: true)
        }

        /// Serves the recorded readiness. Returns whether it counts as a handled source. May destroy the watch.
        @inline(__always)
        func serve() -> Bool {
            let (readiness, reportedAt, source) = unsafe (
                watch.takeReadiness(), watch.reportedAt, watch.source
            )
            return unsafe !readiness.isEmpty
                && source._withUnsafeGuaranteedRef { $0.serveRecorded(readiness, reportedAt: reportedAt) }
        }
    }

    private var first: Link?
    private var last: Link?
    private var round: UInt32 = 0
    /// Whether an activation has ended before it had served all that the kernel had reported.
    var hasLeftovers = false

    var isEmpty: Bool { first == nil }

    @inline(__always)
    fileprivate func append(_ watch: Link) {
        guard !watch.isQueued else { return }
        watch.isQueued = true
        watch.round = round
        watch.previous = last
        if let last { last.next = watch } else { first = watch }
        last = watch
    }

    @inline(__always)
    fileprivate func remove(_ watch: Link) {
        if watch.isQueued { unlink(watch) }
    }

    @inline(__always)
    private func unlink(_ watch: Link) {
        let (previous, next) = (watch.previous, watch.next)
        if let previous { previous.next = next } else { first = next }
        if let next { next.previous = previous } else { last = previous }
        watch.previous = nil
        watch.next = nil
        watch.isQueued = false
    }

    /// Puts the watches that wait in another order, which `order` gives for a count.
    func permute(_ order: (Int) -> [Int]) {
        var links: [Link] = []
        while let link = first {
            links.append(link)
            remove(link)
        }
        for index in order(links.count) { append(links[index]) }
    }

    /// Begins a round of serving; what is recorded from now on is not part of it.
    func beginRound() -> UInt32 {
        round &+= 1
        return round
    }

    /// Takes the first watch that was recorded before `round` began. It may end as soon as it is served.
    @inline(__always)
    func takeFirst(before round: UInt32) -> Link? {
        guard let link = first, holds(before: round) else { return nil }
        unlink(link)
        return link
    }

    /// Whether a watch waits that was recorded before `round` began.
    func holds(before round: UInt32) -> Bool {
        guard let first else { return false }
        // Round numbers wrap around: compare the signed difference.
        return Int32(bitPattern: first.round &- round) < 0
    }

    /// Removes leading watches that have nothing left to serve; true if any watch is left.
    @inline(always)
    func dropServed() -> Bool {
        while let link = first, link.readiness.isEmpty { remove(link) }
        return first != nil
    }

    /// As ``dropServed()``, and polls the first watch again; for a pass without a poll.
    func confirmFirst() -> Bool {
        while dropServed(), let link = first {
            link.confirm()
            guard !link.readiness.isEmpty else { continue }
            link.round = round
            return true
        }
        return false
    }

    /// Whether the kernel has been asked, and something served, since the watch was recorded or confirmed.
    func isLate(_ link: Link) -> Bool { link.round &+ 1 != round }

    /// Whether the library has marked each of them, and the kernel reported none.
    var areAllMarked: Bool {
        var next = first
        while let link = next, link.readiness == .marked { next = link.next }
        return next == nil
    }

    /// How many wait to be served: for a dump.
    var count: Int {
        var (count, next) = (0, first)
        while let link = next {
            count += 1
            next = link.next
        }
        return count
    }
}
