extension Timer {
    /// A timer's closure, which may belong to the thread of a loop.
    ///
    /// `@unchecked Sendable` is right because a closure that is not `@Sendable` comes with its home, a run loop:
    /// each call looks first whether the thread is that loop's, and the closure is destroyed there too.
    struct Handler: @unchecked Sendable {
        private let closure: (Timer) -> Void

        private init(_ closure: @escaping (Timer) -> Void) { self.closure = closure }

        static func anywhere(_ closure: @escaping @Sendable (Timer) -> Void) -> Handler { Handler(closure) }

        /// Only for a timer whose home is the calling thread's loop.
        static func home(_ closure: @escaping (Timer) -> Void) -> Handler { Handler(closure) }

        func callAsFunction(_ timer: Timer) { closure(timer) }
    }

    /// What a timer leaves when it is over. Dealt with outside its lock, as the end of what a closure captured
    /// may call anything.
    struct Remains: ~Copyable {
        fileprivate var handler: Handler?
        /// Where the closure has to be destroyed, if it belongs to a thread.
        fileprivate let home: RunLoop?
        /// The loop that has yet to take the timer out of its queues.
        fileprivate let loop: RunLoop?

        init(_ handler: Handler?, home: RunLoop? = nil, loop: RunLoop? = nil) {
            (self.handler, self.home, self.loop) = (handler, home, loop)
        }
    }

    func settle(_ remains: consuming Remains) {
        remains.loop?.refile(self)
        Self.letGo(of: remains)
    }

    /// Destroys a closure where it belongs.
    static func letGo(of remains: consuming Remains) {
        guard let home = remains.home, !home.identity.isCurrent else { return }
        // Taken, not copied: a reference that is kept here a moment longer may be the last one.
        destroyAtHome(remains.handler.take(), of: home.inbox)
    }
}
