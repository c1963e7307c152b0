public import SystemPackage

extension RunLoop {
    /// Has `listener` accept connections in `mode`. Does nothing if it is closed, another loop's, or in the
    /// mode already.
    ///
    /// - Throws: What epoll_ctl(2) does, such as `Errno.noMemory`.
    /// - Precondition: Called on the loop's thread.
    public func add(_ listener: Listener, forMode mode: Mode) throws(Errno) {
        try add(listener.source, forMode: mode)
        if listener.source.loop === self { listener.acceptor?.joined(mode, of: self, listener) }
    }

    /// Takes `listener` out of `mode`, without closing it: connections wait in its backlog for when it is
    /// added again.
    ///
    /// - Precondition: Called on the loop's thread.
    public func remove(_ listener: Listener, forMode mode: Mode) {
        assertCurrent()
        guard listener.source.loop === self else { return }
        remove(listener.source, forMode: mode)
        listener.acceptor?.left(mode, of: self, listener.source)
    }

    /// Whether `listener` is in `mode` of this loop.
    ///
    /// - Precondition: Called on the loop's thread.
    public func contains(_ listener: Listener, forMode mode: Mode) -> Bool {
        contains(listener.source, forMode: mode)
    }
}
