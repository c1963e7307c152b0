import CReactorLinux
import Glibc
package import SystemPackage

/// Accepts connections from a listening socket, one per call, on any thread: for a ``Listener`` on its loop's thread, and for
/// its ``Listener/Connections`` on the thread of the task that asks. Accepts only on request.
final class Acceptor: Sendable {
    enum Attempt: Sendable {
        case connection(FileDescriptor, from: SocketAddress)
        case fault(Fault)
        /// No more connections are accepted.
        case over
    }

    /// Why, and for how long, accepting backs off.
    struct Fault: Sendable {
        let error: Errno
        let delay: Duration
        let isReported: Bool
    }

    private struct State: ~Copyable {
        /// Nil once it is closed.
        var socket: ListeningSocket?
        var reserve = DescriptorReserve()
        var backoff = AcceptBackoff()
        /// How many more connections may be accepted; nil for no limit.
        var rest: Int?
    }

    /// The listening socket's number, to watch: until ``close()``.
    let number: CInt
    let localAddress: SocketAddress
    /// The options of accepted connections.
    private let options: ConnectionOptions
    /// Whether accepted sockets have them by themselves: TCP's inherit those of this one, unless another program has made it.
    private let isConfigured: Bool
    /// Whether nothing is left to do for them.
    private let isStandard: Bool
    private let state: Mutex<State>

    /// Listens at `address`.
    convenience init(_ address: SocketAddress, _ options: Listener.Options) throws(IOError) {
        try self.init("\(address)", options.connection, isInherited: false) { () throws(Errno) in
            try ListeningSocket(address, options)
        }
    }

    /// Takes ownership of a socket that listens already, and closes it if this fails.
    convenience init(_ descriptor: FileDescriptor, _ options: ConnectionOptions) throws(IOError) {
        try self.init(descriptorName(descriptor.rawValue), options, isInherited: true) { () throws(Errno) in
            try ListeningSocket(descriptor)
        }
    }

    private init(
        _ subject: @autoclosure () -> String, _ options: ConnectionOptions, isInherited: Bool,
        _ listen: () throws(Errno) -> ListeningSocket
    ) throws(IOError) {
        let socket = try attempt(.listen, subject(), listen)
        let descriptor = socket.descriptor
        localAddress = try attempt(.listen, descriptorName(descriptor.rawValue)) { () throws(Errno) in
            try SocketAddress.local(of: descriptor)
        }
        number = descriptor.rawValue
        self.options = options
        let isTCP = localAddress.family != .unix && currentTimeSource?.network == nil
        isConfigured = isTCP ? !isInherited : options == .standard
        isStandard = isConfigured && options == .standard
        state = Mutex(State(socket: socket))
    }

    /// The listening socket; nil once it is closed.
    var descriptor: FileDescriptor? { state.withLock { $0.socket?.descriptor } }

    /// Whether the socket's file is removed with it.
    var removesFile: Bool {
        get { state.withLock { $0.socket?.removesFile ?? false } }
        set { state.withLock { $0.socket?.removesFile = newValue } }
    }

    /// Accepts a connection without blocking; nil if none is pending. Skips up to a pass's worth of connections that were lost
    /// while they were pending.
    func next() -> Attempt? {
        state.withLock { state in
            search: for _ in 0..<(state.rest ?? Listener.connectionsPerPass) {
                guard let socket = state.socket?.descriptor.rawValue else { break }
                do throws(Errno) {
                    try state.reserve.check(duplicating: socket)
                    let connection = try PendingConnection(of: socket)
                    if case .none = connection { break search }
                    state.rest? -= 1
                    guard case .accepted(let descriptor, let peer) = connection else { continue }
                    state.reserve.note(descriptor.rawValue)
                    state.backoff.reset()
                    return .connection(descriptor, from: peer)
                } catch {
                    return .fault(state.backoff.begin(because: error))
                }
            }
            return state.rest == nil ? nil : .over
        }
    }

    /// Creates a connection from a socket that ``next()`` has accepted.
    func connection(_ descriptor: FileDescriptor, from peer: SocketAddress) -> Connection {
        let connection = Connection(
            accepted: descriptor, from: peer, writeBufferSize: options.writeBufferSize)
        if !isStandard { connection.socket.setOptions(options, isAccepted: isConfigured) }
        return connection
    }

    /// Backs off because the loop cannot watch the socket.
    func backOff(because error: Errno) -> Fault { state.withLock { $0.backoff.begin(because: error) } }

    /// Accepts no more connections than the backlog can hold. Then ``next()`` is over.
    func drain() {
        // The kernel's queue holds one connection more than the backlog.
        state.withLock { state in state.rest = min(state.rest ?? .max, (state.socket?.backlog ?? -1) + 1) }
    }

    /// Accepts no more connections, and removes the socket's file as ``close()`` does.
    func refuse() {
        state.withLock { state in
            state.rest = 0
            state.socket?.removeFileEarly()
        }
    }

    /// Closes the socket, and removes its file if ``removesFile`` says so.
    func close() { state.withLock { $0.socket = nil } }
}

/// The next connection in a listening socket's queue.
package enum PendingConnection: Sendable {
    /// It is non-blocking and closed on exec.
    case accepted(FileDescriptor, from: SocketAddress)
    /// It was lost before it could be accepted.
    case lost
    case none

    /// Accepts it (accept4(2)).
    package init(of listener: CInt) throws(Errno) {
        var accepted = reactor_accepted()
        let network = currentTimeSource?.network
        do throws(Errno) {
            try network?.willAccept(from: listener)
            try SystemCall.make {
                accepted = reactor_accept(listener)
                return accepted.descriptor
            }
            let descriptor = FileDescriptor(rawValue: accepted.descriptor)
            let peer = SocketAddress(accepted.peer) ?? .unspecified
            self = .accepted(descriptor, from: network?.accepted(descriptor, from: peer) ?? peer)
        } catch .resourceTemporarilyUnavailable {
            self = .none
        } catch {
            guard connectionErrors.contains(error.rawValue) else { throw error }
            self = .lost
        }
    }
}

/// The errors of accept(2) that concern only the pending connection: those in its manual page, and those that firewalls and
/// protocols add.
private let connectionErrors: Set<CInt> = [
    ECONNABORTED, ECONNRESET, EPROTO, EPERM, ETIMEDOUT, ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH,
    ENONET, ENOPROTOOPT, EOPNOTSUPP, ENOSR, ESOCKTNOSUPPORT, EPROTONOSUPPORT,
]

/// Keeps connections from the last descriptors that the process may open: see ``DispatchWorkers/reservedDescriptors``.
///
/// The kernel gives the lowest free number, so numbers from the limit downwards are reserved. The limit is read near that
/// number, and otherwise once for many connections: if it is lowered while the process runs, the reserve is kept
/// again after 32 connections at most.
private struct DescriptorReserve {
    private static let connectionsPerReading = 32

    /// The first reserved number, and for how many connections it counts before it is read again.
    private var first = 0
    private var connectionsUntilReading = 0
    /// Whether the last connection took the last number that is not reserved.
    private var isReached = false

    /// Notes the number of an accepted connection.
    mutating func note(_ number: CInt) {
        if connectionsUntilReading == 0 || Int(number) >= first - 1 { readLimit() }
        connectionsUntilReading -= 1
        isReached = Int(number) >= first - 1
    }

    /// Fails if the next descriptor would be a reserved one, which duplicating `number` shows.
    mutating func check(duplicating number: CInt) throws(Errno) {
        guard isReached else { return }
        let next = OwnedDescriptor(try SystemCall.duplicate(number))
        readLimit()
        guard Int(next.number) < first else { throw .tooManyOpenFiles }
        isReached = false
    }

    private mutating func readLimit() {
        connectionsUntilReading = Self.connectionsPerReading
        var limit = rlimit()
        let result = unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        first = result == 0 ? Int(clamping: limit.rlim_cur) - Int(DispatchWorkers.reservedDescriptors) : .max
    }
}

/// How long accepting backs off, and when it reports that. Pure: reads no clock.
struct AcceptBackoff {
    /// Long enough that a log line per report isn't a flood.
    private static let reportInterval = Duration.seconds(1)

    /// Descriptors are mostly free again soon, and a try costs microseconds. A client hardly notices a third of a second beside
    /// the wait for a free descriptor. Not random: there is one listener.
    private var delays = Backoff(first: .milliseconds(10), limit: .milliseconds(320))
    private var lastReport = Deadline.distantPast

    fileprivate mutating func begin(because error: Errno) -> Acceptor.Fault {
        Acceptor.Fault(error: error, delay: next(), isReported: reports(at: .now))
    }

    /// The next delay: twice as long as the one before, up to a limit.
    mutating func next() -> Duration { delays.nextBound() }

    /// Called after a connection was accepted.
    mutating func reset() { delays.reset() }

    /// Whether to report a fault at `now`.
    mutating func reports(at now: Deadline) -> Bool {
        guard lastReport == .distantPast || lastReport.advanced(by: Self.reportInterval) <= now else {
            return false
        }
        lastReport = now
        return true
    }
}
