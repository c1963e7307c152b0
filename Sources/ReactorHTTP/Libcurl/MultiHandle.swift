import CReactorLibcurl
import Reactor

/// libcurl's multi handle.
///
/// `@safe`: it owns the pointer, which ends with it.
@safe
struct MultiPointer: ~Copyable {
    @safe private let pointer: UnsafeMutableRawPointer

    /// Nil if there is no memory.
    init?(_ configuration: HTTPSession.Configuration, _ sockets: SocketTable) {
        guard Libcurl.isReady, let pointer = unsafe curl_multi_init() else { return nil }
        unsafe self.pointer = pointer
        unsafe reactor_curl_multi_set_callbacks(
            pointer, SocketTable.socketCallback, SocketTable.timerCallback,
            CallbackContext.address(of: sockets))
        reactor_curl_multi_set_long(
            pointer, CURLMOPT_MAX_TOTAL_CONNECTIONS, configuration.maxConnections ?? 0)
        reactor_curl_multi_set_long(
            pointer, CURLMOPT_MAX_HOST_CONNECTIONS, configuration.maxConnectionsPerHost ?? 0)
    }

    deinit { unsafe Self.free(pointer) }

    private static func free(_ pointer: UnsafeMutableRawPointer) {
        Libcurl.call { _ = unsafe curl_multi_cleanup(pointer) }
    }

    /// Has libcurl send and receive. `bits` say what `socket` is ready for; CURL_SOCKET_TIMEOUT means that time has passed.
    func act(_ socket: CInt, _ bits: CInt) -> CURLMcode {
        var running: CInt = 0
        return curl_multi_socket_action(pointer, socket, bits, &running)
    }

    /// Begins to drive a transfer, which must be removed before it ends.
    func add(_ easy: UInt) -> CURLMcode {
        unsafe curl_multi_add_handle(pointer, UnsafeMutableRawPointer(bitPattern: easy))
    }

    func remove(_ easy: UInt) {
        unsafe curl_multi_remove_handle(pointer, UnsafeMutableRawPointer(bitPattern: easy))
    }

    /// The number of the next transfer that has ended.
    func nextEnded() -> (number: UInt64, code: CURLcode)? {
        var (number, code) = (UInt64(0), CURLE_OK)
        return reactor_curl_multi_next_ended(pointer, &number, &code) ? (number, code) : nil
    }
}

/// The running transfers of a session, and libcurl's multi handle that drives them. Confined to the session's loop.
///
/// Every call of libcurl is made in ``callLibcurl(_:)``, and those do not nest: libcurl's callbacks only record, and so do
/// the delegates of streams. The client's code is called later, in blocks of their own.
final class MultiHandle {
    /// How many bytes all transfers may receive in one pass of the loop: about a millisecond's work, so that timers stay on
    /// time. It is divided among the sockets.
    private static let receiveLimit = 1 << 20

    /// How many transfers one connection of HTTP/2 carries.
    private static let streamLimit = 100

    /// The transfers of a host.
    private struct Host {
        /// How many libcurl has.
        var activeCount = 0
        var waiting = Queue<RunningTransfer>()
    }

    let configuration: HTTPSession.Configuration
    let runLoop: RunLoop
    let modes: [RunLoop.Mode]
    private weak let core: SessionCore?
    let sockets: SocketTable
    /// Nil if there was no memory.
    private var multi: MultiPointer?
    private var running: [UInt64: RunningTransfer] = [:]
    private var hosts: [String: Host] = [:]
    /// Those that have paused because a callback has received enough, in order. The next pass resumes them.
    private var paused: [UInt64] = []
    /// Those that a callback of libcurl has changed.
    private var changed: [RunningTransfer] = []
    /// Those that have ended, until libcurl has returned: closing a stream may call the client's code.
    private var ended: [(RunningTransfer, Result<HTTPTransfer.Response, HTTPError>)] = []
    private var isCallingLibcurl = false
    /// How many bytes this callback may still receive.
    var receiveBudget = 0
    let timeouts: TimeoutWatch

    init(_ core: SessionCore) {
        self.core = core
        (configuration, runLoop, modes) = (core.configuration, core.runLoop, core.modes)
        sockets = SocketTable(runLoop, modes)
        timeouts = TimeoutWatch(runLoop, modes)
        multi = MultiPointer(configuration, sockets)
        sockets.socketIsReady = { [unowned self] in act($0, $1) }
        sockets.timerHasFired = { [unowned self] in act(CURL_SOCKET_TIMEOUT, 0) }
        timeouts.check = { [unowned self] in expireTransfers() }
    }

    deinit {
        sockets.cancelAll()
        timeouts.stop()
        multi = nil
    }

    /// Releases the running transfers, because the session or its loop has ended. They retain the handle.
    func end() {
        hosts = [:]
        Libcurl.call { for transfer in running.values { release(transfer) } }
        for transfer in running.values {
            transfer.abandon(transfer.error(.sessionEnded))
            transfer.end()
        }
        running = [:]
    }

    // MARK: Calling libcurl

    /// Calls `body`, which may call libcurl, then does what its callbacks have asked for.
    func callLibcurl(_ body: () -> Void) {
        require(!isCallingLibcurl, "A callback of libcurl has called libcurl.")
        isCallingLibcurl = true
        receiveBudget = Self.receiveLimit / max(sockets.count, 1)
        timeouts.noteTime()
        Libcurl.call {
            body()
            endFinishedTransfers()
        }
        isCallingLibcurl = false
        for transfer in exchange(&changed, with: []) { transfer.libcurlHasReturned() }
        for (transfer, result) in exchange(&ended, with: []) { conclude(transfer, result) }
        if !paused.isEmpty { core?.wake() }
        if running.isEmpty { becomeIdle() }
    }

    /// Registers nothing with the loop while there are no transfers.
    private func becomeIdle() {
        sockets.stopTimer()
        sockets.unwatchIdle()
        timeouts.stop()
    }

    private func act(_ socket: CInt, _ bits: CInt) {
        withExtendedLifetime(self) {
            callLibcurl {
                sockets.transfer(of: socket).flatMap { running[$0] }?.socketIsReady()
                _ = multi?.act(socket, bits)
            }
        }
    }

    func carryOut(_ commands: ArraySlice<SessionCore.Command>) {
        callLibcurl {
            sockets.startTimer()
            for command in commands { carryOut(command) }
            for number in exchange(&paused, with: []) { running[number].map(resume) }
        }
    }

    private func carryOut(_ command: SessionCore.Command) {
        switch command {
        case .start(let transfer, let destination):
            if configuration.hasTimeouts { timeouts.start() }
            let transfer = RunningTransfer(transfer, destination, self)
            running[transfer.number] = transfer
            timeouts.expect(configuration.totalTimeout)
            admit(transfer)
        case .cancel(let number): running[number].map { fail($0, .cancelled) }
        case .resume(let number): running[number].map(resume)
        case .cancelAll:
            for transfer in running.values.sorted(by: { $0.number < $1.number }) {
                fail(transfer, .sessionEnded)
            }
        }
    }

    // MARK: Transfers

    /// Begins a transfer, or a further attempt, once libcurl has few enough others of its host.
    private func admit(_ transfer: RunningTransfer) {
        transfer.state = .queued
        hosts[transfer.host, default: Host()].waiting.append(transfer)
        beginWaiting(of: transfer.host)
    }

    /// How many transfers of a host libcurl has at most. Those that wait in libcurl take 25 KB each, the end of a transfer
    /// searches all of them, and one call may carry all of them out.
    private func handleLimit(of host: String) -> Int {
        guard let connections = configuration.maxConnectionsPerHost else { return .max }
        return multiplexes(host) ? max(connections, Self.streamLimit) : connections
    }

    /// Whether a connection to a host may carry several transfers.
    func multiplexes(_ host: String) -> Bool {
        configuration.versions != .http1 && host.prefix(6).lowercased() == "https:"
    }

    private func beginWaiting(of host: String) {
        let limit = handleLimit(of: host)
        while let count = hosts[host]?.activeCount, count < limit,
            let next = hosts[host]?.waiting.popFirst()
        {
            if running[next.number] != nil { begin(next) }
        }
        if hosts[host]?.activeCount == 0, hosts[host]?.waiting.isEmpty == true { hosts[host] = nil }
    }

    private func begin(_ transfer: RunningTransfer) {
        if transfer.isSuspended {
            transfer.state = .held
            return
        }
        if let error = transfer.prepare(closingWith: sockets) { return fail(transfer, error) }
        hosts[transfer.host]?.activeCount += 1
        guard let identity = transfer.identity, multi?.add(identity) == CURLM_OK else {
            return fail(transfer, .libcurl(Int(CURLE_OUT_OF_MEMORY.rawValue)))
        }
    }

    /// Begins a transfer that was held, or continues one that has paused, unless it has to keep waiting. Callbacks of
    /// libcurl are called meanwhile.
    private func resume(_ transfer: RunningTransfer) {
        if case .held = transfer.state { return admit(transfer) }
        guard let code = transfer.resume() else { return }
        if code != CURLE_OK { end(transfer, code) }
    }

    /// For streams, which have room or bytes again.
    func resumeFromStream(_ transfer: RunningTransfer) {
        guard !isCallingLibcurl else { return }
        callLibcurl { resume(transfer) }
    }

    /// Records that a callback of libcurl has changed a transfer.
    func noteChange(of transfer: RunningTransfer) { changed.append(transfer) }

    /// Continues a transfer in the next pass, which has paused because this callback has received enough.
    func continueLater(_ transfer: RunningTransfer) { paused.append(transfer.number) }

    private func endFinishedTransfers() {
        while let (number, code) = multi?.nextEnded() {
            if let transfer = running[number] { end(transfer, code) }
        }
        for fault in sockets.takeFaults() { endTransfers(of: fault) }
    }

    /// Fails all transfers of a socket that cannot be watched.
    private func endTransfers(of fault: SocketTable.Fault) {
        func fail(_ number: UInt64) {
            guard let transfer = running[number] else { return }
            self.fail(transfer, transfer.error(.connect, errno: fault.errno))
        }
        // Only libcurl knows which transfers share the connection. It ends them once the connection has ended.
        sockets.shutDown(fault.socket)
        fail(fault.transfer)
        _ = multi?.act(fault.socket, CURL_CSELECT_IN | CURL_CSELECT_ERR)
        while let (number, code) = multi?.nextEnded() {
            if code != CURLE_OK { fail(number) } else if let other = running[number] { end(other, code) }
        }
    }

    /// Ends a transfer, or an attempt of it, with libcurl's result.
    private func end(_ transfer: RunningTransfer, _ code: CURLcode) {
        let error = transfer.error(code)
        release(transfer)
        if let error { return retry(transfer, error) }
        switch transfer.finish() {
        case .success(let response?): finish(transfer, .success(response))
        case .success(nil): break  // the sink will report
        case .failure(let error): fail(transfer, error)
        }
    }

    private func retry(_ transfer: RunningTransfer, _ error: HTTPError) {
        if transfer.attempt.restartsAtOnce { return admit(transfer) }
        guard let delay = transfer.beginRetry(after: error) else { return fail(transfer, error) }
        let timer = Timer.scheduled(after: delay, forMode: modes[0]) { [self] _ in
            callLibcurl { admit(transfer) }
        }
        for mode in modes.dropFirst() { runLoop.add(timer, forMode: mode) }
        transfer.state = .delayed(timer)
    }

    func fail(_ transfer: RunningTransfer, _ kind: HTTPError.Kind) { fail(transfer, transfer.error(kind)) }

    private func fail(_ transfer: RunningTransfer, _ error: HTTPError) {
        release(transfer)
        if !transfer.drains(error) { finish(transfer, .failure(error)) }
    }

    /// Removes a transfer from libcurl. Its connection stays for others, if it is idle.
    private func release(_ transfer: RunningTransfer) {
        guard let identity = transfer.identity else { return }
        multi?.remove(identity)
        transfer.libcurlHasEnded()
        hosts[transfer.host]?.activeCount -= 1
        beginWaiting(of: transfer.host)
    }

    private func finish(_ transfer: RunningTransfer, _ result: Result<HTTPTransfer.Response, HTTPError>) {
        guard running.removeValue(forKey: transfer.number) != nil else { return }
        if case .failure(let error) = result, transfer.canAbandonInsideLibcurl { transfer.abandon(error) }
        ended.append((transfer, result))
    }

    private func conclude(_ transfer: RunningTransfer, _ result: Result<HTTPTransfer.Response, HTTPError>) {
        if case .failure(let error) = result, !transfer.canAbandonInsideLibcurl { transfer.abandon(error) }
        transfer.end()
        core?.ended(transfer.transfer, result)
    }

    /// Called by a sink that had bytes left to write when the transfer ended.
    func sinkHasFinished(_ transfer: RunningTransfer, _ result: Result<HTTPTransfer.Response, HTTPError>) {
        withExtendedLifetime(self) {
            callLibcurl {
                switch result {
                case .success: finish(transfer, result)
                case .failure(let error): fail(transfer, error)
                }
            }
        }
    }

    // MARK: Timeouts

    private func expireTransfers() {
        withExtendedLifetime(self) {
            callLibcurl {
                for transfer in running.values {
                    switch transfer.nextTimeout(at: timeouts.now) {
                    case .expired(let timeout): expire(transfer, timeout)
                    case .after(let rest): timeouts.expect(rest)
                    case .never: break
                    }
                }
            }
        }
    }

    private func expire(_ transfer: RunningTransfer, _ timeout: HTTPError.Timeout) {
        let error = transfer.error(.timedOut(timeout))
        release(transfer)
        if timeout == .total { fail(transfer, error) } else { retry(transfer, error) }
    }
}
