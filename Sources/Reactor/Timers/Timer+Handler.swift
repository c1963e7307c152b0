extension Timer {
    /// A timer's closure, which may belong to the thread of a loop.
    ///
    /// `@unchecked Sendable` is right because a closure that is not `@Sendable` comes with its home, a run loop:
    /// each call looks first whether the thread is that loop's, and the closure is destroyed there too.
    struct Handler: ~Copyable, @unchecked Sendable {
        private let closure: (Timer) -> Void

        private init(_ closure: @escaping (Timer) -> Void) { self.closure = closure }

        static func anywhere(_ closure: @escaping @Sendable (Timer) -> Void) -> Handler { Handler(closure) }

        /// Only for a timer whose home is the calling thread's loop.
        static func home(_ closure: @escaping (Timer) -> Void) -> Handler { Handler(closure) }

        /// For a call: the timer may let go of its own meanwhile.
        var copy: Handler { Handler(closure) }

        func callAsFunction(_ timer: Timer) { closure(timer) }
    }

    /// What a timer leaves when it is over. Dealt with outside its lock, as the end of what a closure captured
    /// may call anything.
    struct Remains: ~Copyable {
        private let handler: Handler?
        /// Where the closure has to be destroyed, if it belongs to a thread.
        private let home: RunLoop?
        /// The loop that has yet to take the timer out of its queues.
        let loop: RunLoop?

        init(_ handler: consuming Handler? = nil, home: RunLoop? = nil, loop: RunLoop? = nil) {
            self.handler = consume handler
            (self.home, self.loop) = (home, loop)
        }

        /// Destroys the closure where it belongs.
        @inline(__always)
        consuming func letGo() {
            guard let home, !home.identity.isCurrent else { return }
            // Moved, not copied: a reference that is kept here a moment longer may be the last one.
            destroyAtHome(handler, of: home.inbox)
        }
    }

    @inline(__always)
    func settle(_ remains: consuming Remains) {
        remains.loop?.refile(self)
        remains.letGo()
    }
}
