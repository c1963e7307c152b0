public import SystemPackage

extension RunLoop {
    /// Has `socket` served in `mode`. Does nothing if it is closed, another loop's, or in the mode already.
    ///
    /// - Throws: What epoll_ctl(2) does, such as `Errno.noMemory`.
    /// - Precondition: Called on the loop's thread.
    public func add(_ socket: DatagramSocket, forMode mode: Mode) throws(Errno) {
        try socket.endpoint?.prepareToReceive()
        try add(socket.source, forMode: mode)
        if socket.source.loop === self { socket.endpoint?.socket = socket }
    }

    /// Takes `socket` out of `mode`, without closing it: what comes in is kept for when it is added again, as far
    /// as the kernel has room.
    ///
    /// - Precondition: Called on the loop's thread.
    public func remove(_ socket: DatagramSocket, forMode mode: Mode) {
        guard contains(socket, forMode: mode) else { return }
        remove(socket.source, forMode: mode)
        socket.endpoint?.isInterrupted = true
        if socket.source.loop == nil { socket.endpoint?.socket = nil }
    }

    /// Whether `socket` is in `mode` of this loop.
    ///
    /// - Precondition: Called on the loop's thread.
    public func contains(_ socket: DatagramSocket, forMode mode: Mode) -> Bool {
        contains(socket.source, forMode: mode)
    }
}
