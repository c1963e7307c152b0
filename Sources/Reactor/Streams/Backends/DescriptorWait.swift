import Glibc
import SystemPackage

/// Waits for a descriptor in a way that another thread can end: with poll(2) on the descriptor and on an
/// eventfd(2).
///
/// Each half of a connection has its own, so that closing one half does not end the waits of the other.
final class DescriptorWait: Sendable {
    private struct State {
        var hasEnded = false
        /// Created by the first thread that has to wait; most streams never need one.
        var counter: EventCounter?
    }

    /// The interval in milliseconds of checking for the end if no descriptor is left for a counter.
    private static let lookInterval: CInt = 20

    private let state = Mutex(State())

    private var hasEnded: Bool { state.withLock { $0.hasEnded } }

    /// Ends the current wait and all later ones.
    func end() {
        let counter = state.withLock { state in
            state.hasEnded = true
            return state.counter
        }
        counter?.increment()
    }

    /// Waits until `number` is ready for `events`.
    ///
    /// - Returns: False once ``end()`` has been called.
    func wait(for events: CInt, of number: CInt) throws(Errno) -> Bool {
        let counter = state.withLock { state in
            if state.counter == nil, !state.hasEnded { state.counter = try? EventCounter() }
            return state.counter
        }
        var isReady = false
        while !isReady, !hasEnded { isReady = try Self.poll(number, events, counter) }
        return !hasEnded
    }

    private static func poll(_ number: CInt, _ events: CInt, _ counter: EventCounter?) throws(Errno) -> Bool {
        var requests: [2 of pollfd] = [
            pollfd(fd: number, events: Int16(events), revents: 0),
            pollfd(fd: counter?.number ?? -1, events: Int16(POLLIN), revents: 0),
        ]
        try SystemCall.poll(&requests, timeout: counter == nil ? lookInterval : -1)
        return requests[0].revents != 0
    }
}

/// An eventfd(2) that is only ever incremented, so that every poll of it returns.
private final class EventCounter: Sendable {
    private let descriptor: OwnedDescriptor

    init() throws(Errno) { descriptor = try .eventCounter() }

    var number: CInt { descriptor.number }

    func increment() { addOne(toEventCounter: number) }
}
