import CReactorLibcurl
import Glibc
import Reactor

/// The sockets and the timer that a multi handle waits for, on the session's loop and in its modes.
///
/// libcurl's callbacks only change it, and never call into libcurl. It outlives the multi handle, whose end calls them too.
final class SocketTable {
    private let runLoop: RunLoop
    private let modes: [RunLoop.Mode]
    private var sources: [CInt: DescriptorSource] = [:]
    /// The sockets of connections. libcurl closes them through its callback, other sockets without.
    private var connections: Set<CInt> = []
    /// The connections that libcurl does not wait for, and that stay registered, because mostly another request follows.
    private var idle: Set<CInt> = []
    /// The transfers that the sockets belong to; of a connection that several share, the last one that libcurl has named.
    private var transfers: [CInt: UInt64] = [:]
    private var timer: Timer?
    private var date = Deadline.distantFuture

    /// Called when a socket is ready, with libcurl's bits.
    var socketIsReady: ((CInt, CInt) -> Void)?
    /// Called when the timer's date has come.
    var timerHasFired: (() -> Void)?
    /// The sockets that could not be watched: their transfers can only fail.
    private var faults: [Fault] = []

    struct Fault {
        let socket: CInt
        /// The transfer that libcurl has named. Others may share the connection.
        let transfer: UInt64
        let errno: Errno
    }

    init(_ runLoop: RunLoop, _ modes: [RunLoop.Mode]) {
        self.runLoop = runLoop
        self.modes = modes
    }

    /// Ends all registrations.
    func cancelAll() {
        for source in sources.values { source.cancel() }
        (sources, transfers, connections, idle) = ([:], [:], [], [])
        stopTimer()
    }

    /// How many sockets libcurl waits for.
    var count: Int { sources.count - idle.count }

    func transfer(of socket: CInt) -> UInt64? { transfers[socket] }

    func takeFaults() -> [Fault] {
        if faults.isEmpty { return [] }
        defer { faults = [] }
        return faults
    }

    // MARK: Sockets

    /// Called when libcurl has made a socket for a connection.
    func noteConnection(_ descriptor: CInt) { connections.insert(descriptor) }

    fileprivate func watch(_ descriptor: CInt, for what: CInt, _ transfer: UInt64) {
        guard what != CURL_POLL_REMOVE else { return becomeIdle(descriptor) }
        var interest: Readiness = []
        if what & CURL_POLL_IN != 0 { interest.insert(.readable) }
        if what & CURL_POLL_OUT != 0 { interest.insert(.writable) }
        idle.remove(descriptor)
        transfers[descriptor] = transfer
        do throws(Errno) {
            if let known = sources[descriptor] {
                if known.interest != interest { try known.changeInterest(interest) }
            } else {
                try add(makeSource(descriptor, interest))
            }
        } catch {
            unwatch(descriptor)
            faults.append(Fault(socket: descriptor, transfer: transfer, errno: error))
        }
    }

    /// Ends a connection, unless libcurl has closed it: its number may belong to another socket then.
    func shutDown(_ descriptor: CInt) {
        if connections.contains(descriptor) { shutdown(descriptor, CInt(SHUT_RDWR)) }
    }

    /// Called when libcurl no longer waits for a socket.
    private func becomeIdle(_ descriptor: CInt) {
        guard connections.contains(descriptor), sources[descriptor] != nil else {
            return unwatch(descriptor)
        }
        transfers[descriptor] = nil
        idle.insert(descriptor)
    }

    /// Unregisters the sockets that libcurl does not wait for.
    func unwatchIdle() { for descriptor in idle { unwatch(descriptor) } }

    private func makeSource(_ descriptor: CInt, _ interest: Readiness) -> DescriptorSource {
        DescriptorSource(FileDescriptor(rawValue: descriptor), for: interest) { [weak self] source, ready in
            self?.serve(source.descriptor.rawValue, ready)
        }
    }

    private func serve(_ descriptor: CInt, _ ready: Readiness) {
        // An idle connection that the server has closed, or of a transfer that has paused.
        if idle.contains(descriptor) { return unwatch(descriptor) }
        var bits: CInt = 0
        if ready.contains(.readable) { bits |= CURL_CSELECT_IN }
        if ready.contains(.writable) { bits |= CURL_CSELECT_OUT }
        socketIsReady?(descriptor, bits)
    }

    private func add(_ source: DescriptorSource) throws(Errno) {
        sources[source.descriptor.rawValue] = source
        for mode in modes { try runLoop.register(source, forMode: mode) }
    }

    private func unwatch(_ descriptor: CInt) {
        transfers[descriptor] = nil
        idle.remove(descriptor)
        sources.removeValue(forKey: descriptor)?.cancel()
    }

    /// Called before libcurl closes a connection, with or without the end of the wait before.
    fileprivate func noteClose(_ descriptor: CInt) {
        connections.remove(descriptor)
        unwatch(descriptor)
    }

    // MARK: The timer

    /// Sets the timer; -1 ms means that there is nothing to wait for.
    fileprivate func setTimer(_ milliseconds: Int) {
        date = milliseconds < 0 ? .distantFuture : .now + .milliseconds(milliseconds)
        if date == .distantFuture, timer == nil { return }
        let timer = timer ?? makeTimer()
        timer.fireDate = date
    }

    private func makeTimer() -> Timer {
        // It is moved by its date, and repeats only so that it stays valid.
        let timer = Timer.scheduled(every: .seconds(1 << 31), forMode: modes[0]) { [weak self] _ in
            self?.fire()
        }
        for mode in modes.dropFirst() { runLoop.add(timer, forMode: mode) }
        self.timer = timer
        return timer
    }

    private func fire() {
        date = .distantFuture
        timerHasFired?()
    }

    /// Removes the timer from the loop while there are no transfers.
    func stopTimer() {
        timer.take()?.invalidate()
    }

    /// Restores the timer when there are transfers again.
    func startTimer() {
        guard timer == nil, date != .distantFuture else { return }
        makeTimer().fireDate = date
    }
}

// MARK: - libcurl's callbacks

extension SocketTable {
    /// `@safe`: only the callbacks below call it, with the context that was set for them.
    @safe
    fileprivate static func table(_ context: UnsafeMutableRawPointer?) -> SocketTable {
        unsafe CallbackContext.object(context)
    }

    static let socketCallback: curl_socket_callback = { easy, descriptor, what, context, _ in
        table(context).watch(descriptor, for: what, reactor_curl_get_number(easy))
        return 0
    }

    static let timerCallback: curl_multi_timer_callback = { _, milliseconds, context in
        table(context).setTimer(milliseconds)
        return 0
    }

    static let closeCallback: curl_closesocket_callback = { context, descriptor in
        table(context).noteClose(descriptor)
        // Not an owner before: versions of libcurl close sockets that do not connect without this callback.
        _ = OwnedDescriptor(descriptor)
        return 0
    }
}
