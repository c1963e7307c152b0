import CReactorLinux

/// A child of fork(2) shares the descriptors of its parent's loops, and has none of their threads but the one that
/// forked: those loops are not for it.
enum Fork {
    /// A number that is another one in a child than in its parent.
    static var count: UInt32 { reactor_fork_count() }

    @inline(never)
    static func refuse() -> Never {
        fatalError(
            "a run loop was used in a child of fork(2), though it belongs to the parent: "
                + "call exec in the child, or fork before the first use of a run loop")
    }
}
