import Glibc
import SystemPackage

/// The options that the kernel keeps of a stream socket. What is nil or false stays as it is.
struct KernelSocketOptions: Sendable, Hashable {
    var noDelay = false
    var keepAlive: KeepAlive?
    var userTimeout: Duration?
    var sendBufferSize: Int?
    var receiveBufferSize: Int?
    var unsentLowWaterMark: Int?

    /// Sets the options, of which those that the socket's family does not have are ignored.
    ///
    /// Before connect(2) or listen(2): the size of the receive buffer limits what window TCP can offer later. An accepted
    /// socket inherits the options of its listener's.
    func apply(to socket: FileDescriptor) {
        if noDelay { socket.setTCPOption(TCP_NODELAY, 1) }
        if let sendBufferSize { try? socket.setOption(SOL_SOCKET, SO_SNDBUF, CInt(clamping: sendBufferSize)) }
        if let receiveBufferSize {
            try? socket.setOption(SOL_SOCKET, SO_RCVBUF, CInt(clamping: receiveBufferSize))
        }
        if let unsentLowWaterMark {
            socket.setTCPOption(TCP_NOTSENT_LOWAT, CInt(clamping: unsentLowWaterMark))
        }
        if let userTimeout {
            socket.setTCPOption(TCP_USER_TIMEOUT, userTimeout.count(of: .milliseconds(1), upTo: .max))
        }
        keepAlive?.apply(to: socket)
    }
}

extension KernelSocketOptions {
    /// When the kernel probes a silent peer. Nil for the system's times.
    struct KeepAlive: Sendable, Hashable {
        var idle: Duration?
        var interval: Duration?
        var count: Int?
    }
}

extension KernelSocketOptions.KeepAlive {
    fileprivate func apply(to socket: FileDescriptor) {
        try? socket.setOption(SOL_SOCKET, SO_KEEPALIVE, 1)
        // The kernel refuses larger values.
        for (name, duration) in [(TCP_KEEPIDLE, idle), (TCP_KEEPINTVL, interval)] {
            guard let duration else { continue }
            socket.setTCPOption(name, duration.count(of: .seconds(1), upTo: 32_767))
        }
        if let count { socket.setTCPOption(TCP_KEEPCNT, CInt(min(count, 127))) }
    }
}

extension Duration {
    /// The number of `unit`s, rounded up.
    fileprivate func count(of unit: Duration, upTo limit: CInt) -> CInt {
        CInt(min((self / unit).rounded(.up), Double(limit)))
    }
}

extension FileDescriptor {
    fileprivate func setTCPOption(_ name: CInt, _ value: CInt) {
        try? setOption(CInt(IPPROTO_TCP), name, value)
    }
}
