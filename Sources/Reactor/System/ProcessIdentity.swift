import CReactorLinux

/// The process that made an object, by the number of forks between it and the program's start.
///
/// A child of fork(2) inherits its parent's objects, but neither its threads nor the right to change what both share:
/// descriptors, an epoll, files. Locks that another thread of the parent held stay locked.
struct ProcessIdentity: Equatable {
    let forks: UInt32

    /// The calling process, whose forks are noticed from now on.
    static var current: ProcessIdentity {
        @inline(__always) get {
            let forks = reactor_fork_count()
            return ProcessIdentity(forks: forks > 0 ? forks : reactor_count_forks())
        }
    }

    /// Whether this is the calling process; false in a child of the process that it stands for.
    var isCurrent: Bool {
        @inline(__always) get { forks == reactor_fork_count() }
    }

    /// Traps because a child of fork(2) has used a run loop of its parent.
    @inline(never)
    static func refuseParentsLoop() -> Never {
        fatalError(
            "A run loop was used in a child of fork(2), though it belongs to the parent: "
                + "call exec in the child, or fork before the first use of a run loop.")
    }
}
