import SystemPackage

/// A listening socket, and what is called for its connections.
///
/// Belongs to the descriptor source's closure: whatever ends that one, even the loop's end, closes the socket
/// and lets go of the closures.
final class Acceptor {
    /// Set while the listener is in a loop, which is what keeps it alive then.
    private var listener: Listener?
    private var socket: ListeningSocket?
    private var handlers: (fault: (Listener, Errno) -> Void, connection: Listener.Handler)?
    private var isInCallout = false
    private var isDraining = false
    /// Why accepting pauses, while it does, and what ends that.
    private(set) var fault: Errno?
    private var timer: Timer?
    private var pause = AcceptPause()

    init(
        _ socket: consuming ListeningSocket, _ faults: @escaping (Listener, Errno) -> Void,
        _ handler: @escaping Listener.Handler
    ) {
        self.socket = consume socket
        handlers = (faults, handler)
    }

    deinit { close() }

    func close() {
        let dropped = handlers.take()
        socket = nil
        endPause()
        listener = nil
        withExtendedLifetime(dropped) {}
    }

    // MARK: Accepting

    /// Accepts what waits, as many connections as a pass may take.
    func serve(_ source: DescriptorSource) {
        guard let listener else { return }
        accept(Listener.connectionsPerPass, for: listener) { source.isServed }
        if isDraining { drain(listener) }
    }

    /// Accepts what waits, and closes. In a callout, that is done when it has returned. No loop has the
    /// source any longer.
    func drain(_ listener: Listener) {
        isDraining = true
        guard !isInCallout else { return }
        // The kernel keeps one more than it was told.
        accept((socket?.backlog ?? 0) + 1, for: listener) { true }
        listener.close()
    }

    /// Accepts up to `most` connections, as long as `goesOn` says so after each.
    private func accept(_ most: Int, for listener: Listener, while goesOn: () -> Bool) {
        isInCallout = true
        defer { isInCallout = false }
        for _ in 0..<most {
            switch socket?.accept() {
            case .connection(let descriptor, let peer):
                pause.reset()
                handOver(descriptor, peer, to: listener)
                guard goesOn() else { return }
            case .lost: continue
            case .fault(let error): return pause(for: error, listener)
            case nil, .some(.none): return
            }
        }
    }

    private func handOver(_ descriptor: FileDescriptor, _ peer: SocketAddress, to listener: Listener) {
        let (input, output) = Stream.socketPair(descriptor: descriptor, closeWhenDone: true)
        handlers?.connection(listener, Listener.Connection(input: input, output: output, peer: peer))
    }

    // MARK: Pausing

    /// Has nothing accepted for a while: the connection stays in the backlog, and so the socket readable.
    private func pause(for error: Errno, _ listener: Listener) {
        fault = error
        if let loop = listener.source.loop, !isDraining {
            try? listener.source.setInterest([])
            let modes = Array(listener.source.membership.groups(common: loop.commonModes).members)
            timer = loop.perform(after: pause.next(), inModes: modes) {
                [weak self, weak source = listener.source] in
                if let source { self?.resume(source) }
            }
        }
        if pause.tells(at: .now) { handlers?.fault(listener, error) }
    }

    private func resume(_ source: DescriptorSource) {
        endPause()
        // Without memory for the registration, this is tried again like the rest.
        do throws(Errno) { try source.setInterest(.readable) } catch {
            if let listener { pause(for: error, listener) }
        }
    }

    private func endPause() {
        fault = nil
        timer?.invalidate()
        timer = nil
    }

    // MARK: Modes

    func joined(_ mode: RunLoop.Mode, of loop: RunLoop, _ listener: Listener) {
        self.listener = listener
        if let timer { loop.add(timer, forMode: mode) }
    }

    func left(_ mode: RunLoop.Mode, of loop: RunLoop, _ source: DescriptorSource) {
        if source.loop != nil {
            if let timer { loop.remove(timer, forMode: mode) }
        } else {
            listener = nil
            if fault != nil { resume(source) }
        }
    }
}

extension DescriptorSource {
    /// Whether it is in the mode that its loop runs in.
    fileprivate var isServed: Bool {
        guard let loop, let mode = loop.currentMode else { return false }
        return membership.contains(mode, common: loop.core.commonModes)
    }
}
