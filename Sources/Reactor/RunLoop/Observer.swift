extension RunLoop {
    /// The points of an activation that an observer can be told of. The bits are Core Foundation's.
    public struct Activities: OptionSet, Sendable, Hashable {
        /// The bits.
        public let rawValue: UInt

        /// Makes a set from its bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// An activation begins; once for each, nested ones too.
        public static let entry = Activities(rawValue: 1)
        /// A pass begins: timers are looked at next.
        public static let beforeTimers = Activities(rawValue: 2)
        /// Blocks and signalled sources are run next.
        public static let beforeSources = Activities(rawValue: 4)
        /// The loop is about to sleep; not told in a pass that only polls. What an observer makes ready on this
        /// loop is served without a sleep; a ``RunLoop/Source/signal()`` needs ``RunLoop/wakeUp()`` as well.
        public static let beforeWaiting = Activities(rawValue: 32)
        /// The loop has woken, and has not served yet what woke it.
        public static let afterWaiting = Activities(rawValue: 64)
        /// An activation ends; once for each.
        public static let exit = Activities(rawValue: 128)
        /// All of them.
        public static let all = Activities(rawValue: 0x0FFF_FFFF)
    }

    /// Is told when a loop reaches certain points of its activations.
    ///
    /// Observers of one activity are called in ascending ``order``, equal ones in the order in which they
    /// were added. They do not keep a loop running. An observer belongs to one loop, in any of its modes, and
    /// to that loop's thread; it is not called again while its own callout is under way.
    public final class Observer {
        /// What the observer is told of.
        public let activities: Activities
        /// Whether the observer is told more than once.
        public let repeats: Bool
        /// The place among the observers of an activity: lower ones are called first.
        public let order: Int
        /// Whether the observer can still be called.
        public var isValid: Bool { handler != nil }

        var membership = Membership()
        /// Where it is filed.
        var places = Places()
        /// Whether it stands for an ordered block, which gets its modes started.
        var isBlock = false
        var loop: RunLoop?
        private var handler: ((Observer, Activities) -> Void)?
        private var isCalling = false

        /// Makes an observer; it does nothing until it is added to a loop.
        ///
        /// - Parameters:
        ///   - activities: What to be told of.
        ///   - repeats: If false, the first callout is the last.
        ///   - order: The place among the observers of an activity.
        ///   - handler: Called on the loop's thread with the observer and the one activity that has been
        ///     reached.
        public init(
            for activities: Activities = .all, repeats: Bool = true, order: Int = 0,
            handler: @escaping (Observer, Activities) -> Void
        ) {
            self.activities = activities
            self.repeats = repeats
            self.order = order
            self.handler = handler
        }

        /// Takes the observer out of its loop for good and lets go of its closure.
        ///
        /// - Precondition: Called on the loop's thread.
        public func invalidate() {
            let dropped = handler.take()
            loop?.core.discard(self)
            withExtendedLifetime(dropped) {}
        }

        func call(_ activity: Activities) {
            guard let handler, !isCalling else { return }
            isCalling = true
            defer { isCalling = false }
            handler(self, activity)
            if !repeats { invalidate() }
        }
    }
}
