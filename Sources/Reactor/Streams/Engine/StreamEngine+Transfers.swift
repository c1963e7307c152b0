import SystemPackage

// MARK: - Asking the backend

extension StreamEngine.State {
    /// The work that remains after a change. A signal for this thread's loop has been given already.
    var next: StreamMachine.Action {
        @inline(__always) mutating get { machine.mayHaveNext ? findNext() : .none }
    }

    @inline(never)
    private mutating func findNext() -> StreamMachine.Action {
        if machine.mustAskBackend { askBackend() }
        return signalOwnLoop() ? .none : machine.next
    }

    /// Signals the stream's source if the stream's loop is this thread's, and has nothing else to do for it.
    ///
    /// - Returns: Whether the source is signalled.
    mutating func signalOwnLoop() -> Bool {
        guard machine.mustSignal, loopSource?.loop.identity.isCurrent == true else { return false }
        loopSource!.signal()
        return true
    }

    /// Asks the backend how far an opening has come, and what the next read or write can expect.
    mutating func refresh() {
        advanceOpening()
        askBackend()
    }

    mutating func advanceOpening() {
        guard machine.status == .opening else { return }
        switch backend.progress() {
        case .waiting: break
        case .failed(let error): fail(error)
        case .ready, .atEnd: machine.opened(backend.readinessSource, isAtEnd: backend.isAtEndWhenOpened)
        }
    }

    @inline(never)
    private mutating func askBackend() {
        if machine.mustChangeReadinessSource { machine.changeReadinessSource(readinessSource) }
        guard machine.isOpen else { return }
        if self.putBack != nil { return machine.note(.ready) }
        // Only for a loop is a file read ahead.
        switch machine.isScheduled ? backend.prepare() : backend.failure.map({ .failed($0) }) {
        case .failed(let error): fail(error)
        case let availability?: machine.note(availability)
        case nil: break
        }
    }

    /// Fails the stream, unless it was closed meanwhile.
    mutating func fail(_ error: any Error) { machine.fail(backend.refusal ?? error) }
}

// MARK: - Transfers

extension StreamEngine {
    /// Moves up to `size` bytes with the stream locked.
    ///
    /// - Parameter move: Returns nil if the backend moves bytes only with nothing locked.
    /// - Returns: What was moved, or that the backend would wait; nil if the stream is not open either.
    @inline(__always)
    private func moveNow(
        _ size: Int, _ move: (inout State) throws(Errno) -> Transfer?
    ) throws(Errno) -> Transfer? {
        let moved = try state.withLock { (state) throws(Errno) -> (Transfer, StreamMachine.Action)? in
            guard state.machine.isOpen, size > 0, let transfer = try move(&state) else { return nil }
            state.machine.makeTransfer(transfer, after: .last)
            return (transfer, state.next)
        }
        guard let (transfer, action) = moved else { return nil }
        if action != .none { perform(action) }
        return transfer
    }

    func read(into buffer: inout MutableRawSpan) -> Int {
        do throws(Errno) {
            let transfer = try moveNow(buffer.byteCount) { (state) throws(Errno) in
                try state.readNow(into: &buffer)
            }
            if let transfer, !transfer.wouldWait { return transfer.count }
            return readWaiting(into: &buffer)
        } catch {
            return failTransfer(backend.transferFailed(error))
        }
    }

    @inline(never)
    private func readWaiting(into buffer: inout MutableRawSpan) -> Int {
        RunLoop.noteWait("in InputStream.read, waiting for the \(title)") {
            transfer(buffer.byteCount) { (backend, _) throws(Errno) in try backend.read(into: &buffer) }
        }
    }

    func write(_ bytes: RawSpan) -> Int {
        do throws(Errno) {
            let transfer = try moveNow(bytes.byteCount) { (state) throws(Errno) in
                try state.backend.writeNow(bytes)
            }
            if let transfer, !transfer.wouldWait { return transfer.count }
            return writeWaiting(bytes)
        } catch {
            return failTransfer(backend.transferFailed(error))
        }
    }

    @inline(never)
    private func writeWaiting(_ bytes: RawSpan) -> Int {
        RunLoop.noteWait("in OutputStream.write, waiting for the \(title)") {
            transfer(bytes.byteCount) { (backend, isScheduled) throws(Errno) in
                try backend.write(bytes, isScheduled: isScheduled)
            }
        }
    }

    private func transfer(
        _ count: Int, _ body: (any StreamBackend, _ isScheduled: Bool) throws(Errno) -> Transfer
    ) -> Int {
        while true {
            let (admission, backend, isScheduled) = state.withLock { state in
                (state.machine.begin(count: count), state.backend, state.machine.isScheduled)
            }
            switch admission {
            case .begun:
                do throws(Errno) { return finishTransfer(try body(backend, isScheduled)) } catch {
                    return failTransfer(error)
                }
            case .refused(let answer): return answer
            case .opening:
                backend.waitUntilOpen()
                if advanceOpening() { return -1 }
            }
        }
    }

    @discardableResult
    private func finishTransfer(_ transfer: Transfer) -> Int {
        perform(
            state.withLock { state in
                state.machine.finishTransfer(transfer, after: .last)
                return state.next
            })
        return transfer.count
    }

    @inline(never)
    private func failTransfer(_ error: Errno) -> Int {
        // Another thread may have closed the stream during the call, which is no error of the stream.
        fail(error)
        refresh()
        return -1
    }

    /// Reads without waiting.
    ///
    /// - Returns: The number of bytes; 0 at the end; nil if an event will report more.
    func readIfReady(into buffer: inout MutableRawSpan) throws -> Int? {
        let transfer = try transferIfReady(
            buffer.byteCount, { (state) throws(Errno) in try state.readNow(into: &buffer) },
            unlocked: { (backend) throws(Errno) in try backend.readIfReady(into: &buffer) })
        return transfer.wouldWait ? nil : transfer.count
    }

    /// Writes without waiting.
    ///
    /// - Returns: The number of accepted bytes; nil if an event will report room.
    func writeIfReady(_ bytes: RawSpan) throws -> Int? {
        let transfer = try transferIfReady(
            bytes.byteCount, { (state) throws(Errno) in try state.backend.writeNow(bytes) },
            unlocked: { (backend) throws(Errno) in try backend.writeIfReady(bytes) })
        guard transfer.count > 0 || !transfer.isAtEnd else { throw failure(backend.endError) }
        return transfer.wouldWait ? nil : transfer.count
    }

    /// Moves up to `size` bytes without waiting: by `move`, or by `unlocked` if the backend moves bytes only with nothing
    /// locked.
    @inline(__always)
    private func transferIfReady(
        _ size: Int, _ move: (inout State) throws(Errno) -> Transfer?,
        unlocked: (any StreamBackend) throws(Errno) -> Transfer
    ) throws -> Transfer {
        do throws(Errno) {
            if let transfer = try moveNow(size, move) { return transfer }
        } catch {
            throw failed(with: backend.transferFailed(error))
        }
        let (status, backend) = state.withLock { ($0.machine.status, $0.backend) }
        switch status {
        case .open, .reading, .writing: break
        case .atEnd: return Transfer(count: 0, isAtEnd: true)
        case .opening: return Transfer(count: 0)
        case .notOpen, .closed, .error: throw failure
        }
        do throws(Errno) {
            return finish(try unlocked(backend), of: size)
        } catch {
            if self.status == .atEnd { throw failure(backend.endError) }
            throw failed(with: error)
        }
    }

    /// Reports a transfer of up to `size` bytes that has been made with the stream open.
    @discardableResult
    func finish(_ transfer: Transfer, of size: Int) -> Transfer {
        _ = state.withLock { $0.machine.begin(count: size) }
        finishTransfer(transfer)
        return transfer
    }

    private func failed(with error: Errno) -> any Error {
        fail(error)
        refresh()
        return failure
    }

    /// The bytes that are left of a stream in memory; nil for other streams, and unless it is open.
    func takeBuffer() -> UnsafeRawBufferPointer? {
        guard isOpen, state.withLock({ $0.putBack == nil }), let bytes = unsafe backend.takeBuffer() else {
            return nil
        }
        finishTransfer(Transfer(count: bytes.count, isAtEnd: true))
        return unsafe bytes
    }

    func flush(until deadline: Deadline) throws(Errno) {
        guard isOpen || status == .atEnd else { throw .badFileDescriptor }
        try RunLoop.noteWait("in OutputStream.flush, waiting for the \(title)") { () throws(Errno) in
            try backend.flush(until: deadline)
        }
    }

    func shutDown() throws(Errno) {
        guard isOpen else { throw .socketNotConnected }
        do throws(Errno) {
            try backend.shutDown()
            update { $0.machine.shutDown() }
        } catch {
            if error != .notSocket { fail(error) }
            refresh()
            throw error
        }
    }
}
