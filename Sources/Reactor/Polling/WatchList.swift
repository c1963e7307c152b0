/// The registrations of one descriptor: one for each poller, and nearly always one. It runs through the watches
/// themselves.
///
/// Going through it, the watch that is at hand may be freed.
struct WatchList: Sequence {
    private var first: Watch?

    var isEmpty: Bool { first == nil }

    /// Whether `watch` is all there is.
    @inline(__always)
    func isOnly(_ watch: Watch) -> Bool { watch.sibling == nil && first?.isSame(as: watch) == true }

    mutating func insert(_ watch: Watch) {
        watch.sibling = first
        first = watch
    }

    /// Frees those that `isDone` says yes to, and returns the others.
    func freeing(_ isDone: (Watch) -> Bool) -> WatchList {
        var rest = WatchList()
        for watch in self {
            if isDone(watch) { watch.free() } else { rest.insert(watch) }
        }
        return rest
    }

    func makeIterator() -> Iterator { Iterator(upcoming: first) }

    struct Iterator: IteratorProtocol {
        fileprivate var upcoming: Watch?

        mutating func next() -> Watch? {
            guard let watch = upcoming else { return nil }
            upcoming = watch.sibling
            return watch
        }
    }
}
