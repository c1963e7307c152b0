import CReactorLibevent
import Glibc
import SystemPackage

/// What a watch is for, and who owns it.
protocol WatchOwner: AnyObject {
    /// Serves what a watch has recorded. Returns whether that has handled a source: whether a handler was called.
    func serveRecorded(_ readiness: Readiness) -> Bool

    /// Whether what was recorded is confirmed by the kernel when it is served late. An owner that asks the kernel itself
    /// has no need of that.
    var confirmsLateReadiness: Bool { get }
}

/// What one source is ready for in one mode, and the kernel's registrations that tell of it.
///
/// Reading and writing are registered apart, so that changing one of them is one system call. What the library itself
/// has raised is recorded here as well, which needs no registration, and no poller.
final class Watch {
    /// Proof: the owner ends its watches with itself. Serving it retains it.
    private unowned(unsafe) let owner: any WatchOwner
    private let queue: ReadyQueue
    /// The mode's number.
    let mode: Int32
    private var descriptor: CInt
    /// What was recorded and has not been served yet. While it is not empty the watch is in the queue.
    fileprivate var readiness: Readiness = []
    /// Nil while the loop has no descriptors for one: then only what is raised is recorded.
    private var poller: Poller?
    private var reading: Registration?
    private var writing: Registration?

    // The queue's.
    fileprivate var isQueued = false
    /// The round of serving in which it was queued.
    fileprivate var round: UInt32 = 0
    /// The neighbours.
    fileprivate var previous: ReadyQueue.Link?
    fileprivate var next: ReadyQueue.Link?

    init(_ descriptor: CInt, for owner: any WatchOwner, mode: Int32, in queue: ReadyQueue) {
        self.descriptor = descriptor
        unsafe self.owner = owner
        self.mode = mode
        self.queue = queue
    }

    deinit { queue.remove(self) }

    /// Ends the registrations and drops what was recorded, at once, though the watch may be being served.
    func end() {
        reading = nil
        writing = nil
        readiness = []
        queue.remove(self)
    }

    // MARK: What is watched

    /// Takes another descriptor; what was watched is watched no longer.
    func adopt(_ descriptor: CInt) {
        reading = nil
        writing = nil
        self.descriptor = descriptor
    }

    var hasPoller: Bool { poller != nil }

    func use(_ poller: Poller) { self.poller = poller }

    /// Makes `interest` what the kernel watches for. On an error nothing that was watched before is lost.
    func setInterest(_ interest: Readiness) throws(Errno) {
        guard let poller else { return }
        // What is new comes first: if that fails, what was registered still is.
        let isReadingNew = interest.contains(.readable) && reading == nil
        if isReadingNew { reading = try poller.register(descriptor, EV_READ, for: self) }
        if interest.contains(.writable), writing == nil {
            do throws(Errno) { writing = try poller.register(descriptor, EV_WRITE, for: self) } catch {
                if isReadingNew { reading = nil }
                throw error
            }
        }
        if !interest.contains(.readable) { reading = nil }
        if !interest.contains(.writable) { writing = nil }
    }

    // MARK: What is ready

    /// Keeps `readiness` for the loop to serve.
    @inline(__always)
    func record(_ readiness: Readiness) {
        self.readiness.formUnion(readiness)
        queue.append(self)
    }

    /// Keeps only what is still wanted of what was recorded.
    func narrow(to interest: Readiness) { readiness.formIntersection(interest) }

    /// Drops what the kernel had told and does not say any more, for an owner that wants to know.
    @inline(never)
    func confirm() {
        guard unsafe owner.confirmsLateReadiness, readiness != .raised else { return }
        guard let events = try? SystemCall.poll(descriptor, for: POLLIN | POLLOUT) else { return }
        narrow(to: Readiness(poll: events).union(.raised))
    }

    /// Takes what was recorded, so that it is not served once more.
    func takeReadiness() -> Readiness {
        let taken = readiness
        readiness = []
        return taken
    }

    /// Has the owner serve what was recorded. Returns whether that has handled a source.
    @inline(__always)
    func serve() -> Bool {
        let readiness = takeReadiness()
        return unsafe !readiness.isEmpty && owner.serveRecorded(readiness)
    }
}

/// The watches of one mode that wait to be served, first come first.
///
/// The queue runs through the watches themselves, both ways: a running loop does not allocate, and a watch
/// that ends leaves at once. Serving goes by rounds: what is recorded during one is served in the next, after
/// the kernel has been asked again, so that nothing that keeps itself ready keeps others waiting.
final class ReadyQueue {
    /// A watch in the queue, of which no references are counted: that is what an event costs otherwise.
    ///
    /// `@safe` is right because a watch leaves the queue before it ends.
    @safe
    @dynamicMemberLookup
    struct Link {
        private let watch: Unmanaged<Watch>

        fileprivate init(_ watch: Watch) { unsafe self.watch = .passUnretained(watch) }

        @inline(__always)
        func use<Answer>(_ body: (Watch) -> Answer) -> Answer { unsafe watch._withUnsafeGuaranteedRef(body) }

        subscript<Value>(dynamicMember property: ReferenceWritableKeyPath<Watch, Value>) -> Value {
            @inline(__always) get { use { $0[keyPath: property] } }
            @inline(__always) nonmutating set { use { $0[keyPath: property] = newValue } }
        }
    }

    private var first: Link?
    private var last: Link?
    private var round: UInt32 = 0
    /// Whether an activation has ended before it had served all that the kernel had told.
    var hasLeftovers = false

    var isEmpty: Bool { first == nil }

    @inline(__always)
    fileprivate func append(_ watch: Watch) {
        guard !watch.isQueued else { return }
        watch.isQueued = true
        watch.round = round
        watch.previous = last
        let link = Link(watch)
        if let last { last.next = link } else { first = link }
        last = link
    }

    @inline(__always)
    fileprivate func remove(_ watch: Watch) {
        guard watch.isQueued else { return }
        if let previous = watch.previous { previous.next = watch.next } else { first = watch.next }
        if let next = watch.next { next.previous = watch.previous } else { last = watch.previous }
        watch.previous = nil
        watch.next = nil
        watch.isQueued = false
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
        link.use { remove($0) }
        return link
    }

    /// Whether a watch waits that was recorded before `round` began.
    @inline(__always)
    func holds(before round: UInt32) -> Bool {
        guard let first else { return false }
        // Rounds wrap around after four thousand million: the difference is what tells.
        return Int32(bitPattern: first.round &- round) < 0
    }

    /// Drops from the front what has been served, or withdrawn, in another way; true if anything is left.
    @inline(always)
    func hasUnserved() -> Bool {
        while let link = first, link.readiness.isEmpty { link.use { remove($0) } }
        return first != nil
    }

    /// As ``hasUnserved()``, where the kernel is not asked for anything new: what comes first is still so.
    func hasConfirmed() -> Bool {
        while hasUnserved(), let link = first {
            link.use { $0.confirm() }
            guard !link.readiness.isEmpty else { continue }
            link.round = round
            return true
        }
        return false
    }

    /// Whether the kernel has been asked, and something served, since the watch was recorded or confirmed.
    @inline(__always)
    func isLate(_ link: Link) -> Bool { link.round &+ 1 != round }

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
