extension RunLoop {
    /// The points of an activation at which observers are called. The bits are Core Foundation's.
    public struct Activities: OptionSet, Sendable, Hashable {
        /// The bits.
        public let rawValue: UInt

        /// Creates a set from its bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// An activation begins; once for each, nested ones too.
        public static let entry = Activities(rawValue: 1)
        /// A pass begins; timers are processed next.
        public static let beforeTimers = Activities(rawValue: 2)
        /// Blocks and signalled sources are run next.
        public static let beforeSources = Activities(rawValue: 4)
        /// The loop is about to sleep; not reached in a pass that only polls. What an observer makes ready on this loop is
        /// served without a sleep; a ``RunLoop/Source/signal()`` needs ``RunLoop/wakeUp()`` as well.
        public static let beforeWaiting = Activities(rawValue: 32)
        /// The loop has woken, and has not yet served the event that woke it.
        public static let afterWaiting = Activities(rawValue: 64)
        /// An activation ends; once for each.
        public static let exit = Activities(rawValue: 128)
        /// All of them.
        public static let all = Activities(rawValue: 0x0FFF_FFFF)
    }

    /// Calls a closure when a loop reaches certain points of its activations.
    ///
    /// Observers of one activity are called in ascending `order`, those of equal order as they were added. They do not
    /// keep a loop running. An observer belongs to one loop, in any of its modes, and to that loop's thread; it is not
    /// called again while its callback is in progress.
    ///
    /// ```swift
    /// let idle = RunLoop.Observer(for: [.beforeWaiting, .exit]) { _, activity in print(activity) }
    /// RunLoop.current.add(idle, forMode: .common)
    /// ```
    public final class Observer {
        /// The activities that the observer is called for.
        package let activities: Activities
        /// Whether the observer is called more than once.
        package let repeats: Bool
        /// The place among the observers of an activity: lower orders are called first.
        package let order: Int
        /// Whether the observer can still be called.
        ///
        /// - Precondition: Called on the loop's thread.
        public var isValid: Bool {
            requireLoopThread()
            return handler != nil
        }

        var membership = Membership()
        /// Where the observer is entered.
        var entries = ModeEntries()
        /// Whether this is an ordered block, which lets an activation start.
        var isBlock = false
        var loop: RunLoop?
        var name: ItemName?
        private var handler: ((Observer, Activities) -> Void)?
        private(set) var isCalling = false

        /// Creates an observer; it does nothing until it is added to a loop.
        ///
        /// - Parameters:
        ///   - activities: The activities to be called for.
        ///   - repeats: If false, the first call is the last.
        ///   - order: The place among the observers of an activity.
        ///   - label: What dumps, ``LoopDiagnostics`` and explanations call the observer.
        ///   - handler: Called on the loop's thread with the observer and the activity that has been reached.
        ///   - file: The file of the call, for reports.
        ///   - line: Its line.
        public init(
            for activities: Activities = .all, repeats: Bool = true, order: Int = 0, label: String? = nil,
            file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping (Observer, Activities) -> Void
        ) {
            name = .make(label, file, line)
            self.activities = activities
            self.repeats = repeats
            self.order = order
            self.handler = handler
        }

        /// What the observer is, with its label.
        var title: String { name.naming(isBlock ? "block" : "observer") }

        /// Removes the observer from its loop permanently and releases its closure.
        ///
        /// - Precondition: Called on the loop's thread.
        public func invalidate() {
            let handler = handler.take()
            loop?.core.update(self) { $0 = Membership() }
            withExtendedLifetime(handler) {}
        }

        /// Traps on another thread than the loop's, if the observer is in a loop.
        func requireLoopThread() { loop?.requireCurrent("An Observer must be used") }

        func call(_ activity: Activities, _ meter: LoopMeter) {
            guard let handler, !isCalling else { return }
            isCalling = true
            defer { isCalling = false }
            // A block that runs is not pending: it does not keep a mode that it runs in turn from being empty.
            if isBlock { invalidate() }
            meter.others.add()
            meter.call(.observer, { meter.push(title) }, { handler(self, activity) })
            if !repeats { invalidate() }
        }
    }
}

/// The observers of one mode: lower orders first, equal orders as they were added.
///
/// Adding and removing cost O(1) however many there are; the list in order is made anew when it is asked for after a change.
struct ObserverList: ~Copyable {
    struct Entry {
        let sequence: UInt64
        let observer: RunLoop.Observer

        func precedes(_ other: Entry) -> Bool {
            (observer.order, sequence) < (other.observer.order, other.sequence)
        }
    }

    /// The activities that any of the observers wants, and until ``inOrder()`` also those of removed ones: most passes need
    /// look no further.
    private(set) var activities: RunLoop.Activities = []
    private var entries = ItemTable<Entry>()
    private var ordered: [Entry]?

    var isEmpty: Bool { entries.isEmpty }

    mutating func inOrder() -> [Entry] {
        if let ordered { return ordered }
        let entries = entries.members.sorted { $0.precedes($1) }
        activities = entries.reduce(into: []) { $0.formUnion($1.observer.activities) }
        ordered = entries
        return entries
    }

    mutating func insert(_ observer: RunLoop.Observer, sequence: UInt64) -> Int32 {
        ordered = nil
        activities.formUnion(observer.activities)
        return entries.insert(Entry(sequence: sequence, observer: observer))
    }

    /// Removes an observer, to which the caller keeps a reference.
    mutating func remove(at slot: Int32) {
        ordered = nil
        entries.remove(slot)
    }
}
