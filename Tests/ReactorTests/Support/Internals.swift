import Reactor
import Synchronization

// What behaviour leaves no other trace of: whether memory is freed, and when the library's own thread is idle.

/// Waits until the thread that connects sockets, and that serves streams on queues, has done what it was asked to.
func waitForStreamsThread() throws {
    for _ in 0..<3 { try streamsLoop().performAndWait {} }
}

func streamsLoop() throws -> RunLoop { try ResidentThread.streams.runLoop() }

/// The limit of connections that a listener accepts in one pass.
let connectionsPerPass = Listener.connectionsPerPass

#if DEBUG

@testable import Reactor

extension Stream {
    /// What the stream stands on, which must end with it.
    var internals: AnyObject { engine }

    /// What the halves of a socket share, and must end with them.
    var sharedConnection: AnyObject? { socketConnection }

    /// The timer of a socket's idle timeout.
    var timeoutTimer: Timer? { socketConnection?.timeouts?.idle.timer }

    private var socketConnection: SocketConnection? { (engine.backend as? SocketInput)?.connection }
}

/// Closes a socket as its streams do, which another thread uses if `isInUse` is true.
func closeGracefully(_ number: CInt, isInUse: Bool) {
    let socket = SharedDescriptor(number, closesWhenDone: true)
    func close() {
        GracefulClose.begin(for: socket, within: .init(), engine: nil)
        socket.close()
    }
    if isInUse { try? socket.use { _ in close() } } else { close() }
}

/// How many waits for the bytes of an output are kept.
func waitingFlushCount(of output: OutputStream) -> Int {
    (output.engine.backend as? SocketOutput)?.buffer?.waitingFlushCount ?? 0
}

#else

func waitingFlushCount(of output: OutputStream) -> Int { 0 }

extension Stream {
    /// An optimized build hides what the stream stands on: the stream stands for that.
    var internals: AnyObject { self }

    var sharedConnection: AnyObject? { self }
}

#endif
