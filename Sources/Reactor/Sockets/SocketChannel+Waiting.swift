import Glibc
import SystemPackage

/// What a thread that waits for a socket waits for beside it: that there is nothing to wait for any longer.
///
/// Made when somebody first has to wait; most streams are on a loop, and never do.
final class SocketWaker: Sendable {
    private let counter: OwnedDescriptor

    init() throws(Errno) { counter = try .eventCounter() }

    /// Lets go of whoever waits, and of whoever will.
    func wake() { addOne(toEventCounter: counter.number) }

    /// Waits until `number` is ready for `events`, or ``wake()`` has been called.
    func wait(_ number: CInt, for events: CInt) throws(Errno) {
        var requests: [2 of pollfd] = [
            pollfd(fd: number, events: Int16(events), revents: 0),
            pollfd(fd: counter.number, events: Int16(POLLIN), revents: 0),
        ]
        var span = requests.mutableSpan
        try SystemCall.make {
            unsafe span.withUnsafeMutableBufferPointer { unsafe poll($0.baseAddress, 2, -1) }
        }
    }
}

extension SocketChannel {
    /// Waits until a read or a write would not block, or there is a fault.
    ///
    /// - Throws: `Errno.canceled` when another thread closes the half.
    func wait(for events: CInt, _ half: Half) throws(Errno) {
        let (isOver, waker) = try state.withLock { (state) throws(Errno) -> (Bool, SocketWaker?) in
            if state.isClosed(half) { throw .canceled }
            return state.fault == nil ? (false, state.waker(of: half)) : (true, nil)
        }
        if isOver { return }
        // Without a descriptor to be woken by, it is the peer that has to end the wait.
        guard let waker else { return try holder.wait(for: events) }
        try holder.use { (number) throws(Errno) in try waker.wait(number, for: events) }
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

/// What the threads that wait for the halves of a socket are woken by.
struct SocketWakers {
    private var input: SocketWaker?
    private var output: SocketWaker?

    subscript(half: SocketChannel.Half) -> SocketWaker? {
        get { half == .input ? input : output }
        set { if half == .input { input = newValue } else { output = newValue } }
    }
}

extension SocketChannel.State {
    func isClosed(_ half: SocketChannel.Half) -> Bool { half == .input ? isInputClosed : isOutputClosed }

    /// Nil if there is no descriptor for it.
    fileprivate mutating func waker(of half: SocketChannel.Half) -> SocketWaker? {
        if let known = details.wakers[half] { return known }
        let waker = try? SocketWaker()
        details.wakers[half] = waker
        return waker
    }
}
