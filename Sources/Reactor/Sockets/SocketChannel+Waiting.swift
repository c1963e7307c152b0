import SystemPackage

extension SocketChannel {
    /// Waits until a read or a write would not block, or there is a fault.
    ///
    /// - Throws: `Errno.canceled` when another thread closes the half.
    func wait(for events: CInt, _ half: Half) throws(Errno) {
        let wait = try state.withLock { (state) throws(Errno) -> DescriptorWait? in
            if state.isClosed(half) { throw .canceled }
            return state.fault == nil ? state.wait(of: half) : nil
        }
        guard let wait else { return }
        _ = try holder.use { (number) throws(Errno) in try wait.wait(for: events, of: number) }
    }

    /// Waits until the connection is there or has failed, or another thread closes the half.
    func waitUntilOpen(_ half: Half) {
        guard let changed else { return }
        while true {
            let generation = changed.generation
            let isOver = state.withLock { state in
                if case .waiting = state.progress { state.isClosed(half) } else { true }
            }
            if isOver { return }
            changed.wait(after: generation)
        }
    }
}

/// The waits of threads for the halves of a socket.
struct SocketWaits {
    private var input: DescriptorWait?
    private var output: DescriptorWait?

    subscript(half: SocketChannel.Half) -> DescriptorWait? {
        get { half == .input ? input : output }
        set { if half == .input { input = newValue } else { output = newValue } }
    }
}

extension SocketChannel.State {
    func isClosed(_ half: SocketChannel.Half) -> Bool { half == .input ? isInputClosed : isOutputClosed }

    fileprivate mutating func wait(of half: SocketChannel.Half) -> DescriptorWait {
        if let known = details.waits[half] { return known }
        let wait = DescriptorWait()
        details.waits[half] = wait
        return wait
    }
}
