import Dispatch
import Foundation
import Reactor

/// The connection that all remote ports of one address send over. It is closed with the last of them.
///
/// Sending waits, on the caller's thread: there is one sender at a time, and the others wait for their turn.
final class PortLink: @unchecked Sendable {
    // `@unchecked Sendable` is right: `socket` is touched by the sender alone that holds the turn.

    private let signature: PortSignature
    /// A lock that can be waited for to a deadline. Foundation's traps on distant dates.
    private let turn = DispatchSemaphore(value: 1)
    private var socket: PortSocket?

    /// Tells this link from a later one to the same address.
    private let number: Int

    private init(_ signature: PortSignature, number: Int) {
        self.signature = signature
        self.number = number
    }

    deinit { Self.known.withLock { $0.forget(signature, number: number) } }

    /// Sends `bytes`, or says that it could not before the date.
    func send(_ bytes: [UInt8], before date: Date) -> Bool {
        let deadline = Deadline.now.advanced(by: date.patience)
        let limit = DispatchTime(uptimeNanoseconds: UInt64(deadline.uptimeNanoseconds))
        guard turn.wait(timeout: limit) == .success else { return false }
        defer { turn.signal() }
        dropDeadSocket()
        if let socket {
            switch socket.send(bytes, before: deadline) {
            case .sent: return true
            case .failed(let sentCount):
                self.socket = nil
                // The receiver has closed the connection just now, and knows nothing of this message.
                guard sentCount == 0, Deadline.now < deadline else { return false }
            }
        }
        guard let socket = PortSocket(connectingTo: signature, before: deadline) else { return false }
        guard case .sent = socket.send(bytes, before: deadline) else { return false }
        self.socket = socket
        return true
    }

    private func dropDeadSocket() {
        if let socket, !socket.isAlive { self.socket = nil }
    }

    // MARK: The links there are

    private struct Known {
        struct Entry {
            weak var link: PortLink?
            let number: Int
        }

        var entries: [PortSignature: Entry] = [:]
        var lastNumber = 0

        /// Looks at numbers alone: to look at a link could be to hold the last reference, with the lock held.
        mutating func forget(_ signature: PortSignature, number: Int) {
            if entries[signature]?.number == number { entries[signature] = nil }
        }
    }

    private static let known = Mutex(Known())

    /// The link to where a port listens.
    static func shared(_ signature: PortSignature) -> PortLink {
        known.withLock { known in
            if let link = known.entries[signature]?.link { return link }
            known.lastNumber += 1
            let link = PortLink(signature, number: known.lastNumber)
            known.entries[signature] = Known.Entry(link: link, number: link.number)
            return link
        }
    }
}

extension Date {
    /// How long it is until then; never less than nothing.
    fileprivate var patience: Duration {
        let seconds = timeIntervalSinceNow
        return .seconds(min(max(seconds, 0), Self.longestPatience))
    }

    /// A century, in seconds: more than a clock of nanoseconds needs to hold.
    private static let longestPatience = 3.2e9
}
