import CReactorLinux
import Glibc
public import SystemPackage

/// The service manager that has started this process, such as systemd: the sockets that it passes, and what it is told.
///
/// ```swift
/// let socket = try ServiceManager.takeSockets().first
/// let connections = try socket.map { try RunLoop.main.connections(descriptor: $0.descriptor) }
///     ?? RunLoop.main.connections(at: .ipv6Any(port: 7007))
/// try ServiceManager.notify(.ready, .status("Listening on \(connections.localAddress)"))
/// ```
///
/// Without a manager there are no sockets, and notifications do nothing. Any thread. No variable of the environment is changed:
/// `LISTEN_PID` keeps children from taking the sockets.
///
/// See sd_listen_fds(3), sd_notify(3) and systemd.service(5).
public enum ServiceManager {
    /// A socket, a FIFO or another file that is passed to a process, with its name.
    public struct Socket: Sendable, Hashable {
        /// The name: `FileDescriptorName=` of systemd.socket(5), by default the name of the socket's unit; `unknown` if the
        /// manager passes none.
        public let name: String
        /// The descriptor.
        public let descriptor: FileDescriptor

        /// Names a descriptor, for ``ChildProcess/Configuration/sockets``.
        public init(_ descriptor: FileDescriptor, name: String = "unknown") {
            (self.descriptor, self.name) = (descriptor, name)
        }
    }

    /// Something to report. The raw value is the line of the protocol, `VARIABLE=VALUE`; several are separated by line feeds.
    public struct Notification: RawRepresentable, Sendable, Hashable {
        /// The line.
        public let rawValue: String

        /// A notification of the protocol that has no name here.
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The service has started, or has reloaded its configuration.
        public static let ready = Notification(rawValue: "READY=1")
        /// The service is ending.
        public static let stopping = Notification(rawValue: "STOPPING=1")
        /// The service is alive: see ``ServiceManager/watchdogTimer()``.
        public static let watchdog = Notification(rawValue: "WATCHDOG=1")
        /// The service reloads its configuration, and will report ``ready``.
        public static var reloading: Notification {
            Notification(rawValue: "RELOADING=1\nMONOTONIC_USEC=\(Deadline.now.uptimeNanoseconds / 1_000)")
        }
        /// A line about the state of the service, for people. Line feeds become spaces.
        public static func status(_ text: String) -> Notification {
            Notification(rawValue: "STATUS=" + String(text.map { $0.isNewline ? " " : $0 }))
        }
    }

    // MARK: Sockets

    private static let hasTakenSockets = Mutex(false)
    /// `SD_LISTEN_FDS_START`.
    static let firstSocket: CInt = 3

    /// The sockets that the manager has passed to this process, in its order. Their descriptors belong to the caller.
    ///
    /// They are returned once, by the first call, which sets close-on-exec. A `Listener` or
    /// ``RunLoop/connections(descriptor:connectionOptions:inModes:acceptErrors:)`` serves a listening socket, a
    /// ``DatagramSocket`` one of datagrams.
    ///
    /// - Throws: ``IOError`` with `Errno.invalidArgument` for an environment that is no manager's, with an error of fcntl(2)
    ///   for a number that is no descriptor's.
    public static func takeSockets() throws(IOError) -> [Socket] {
        try hasTakenSockets.withLock { hasTaken throws(IOError) in
            guard !hasTaken, let process = environmentVariable("LISTEN_PID"),
                let count = environmentVariable("LISTEN_FDS")
            else { return [] }
            guard let process = pid_t(process), let count = CInt(count),
                (0...CInt.max - firstSocket).contains(count)
            else { throw IOError(.read, "LISTEN_FDS", .invalidArgument) }
            guard process == getpid() else { return [] }
            let names = environmentVariable("LISTEN_FDNAMES")?
                .split(separator: ":", omittingEmptySubsequences: false).map { String($0) }
            guard names.map({ $0.count == count }) ?? true else {
                throw IOError(.read, "LISTEN_FDNAMES", .invalidArgument)
            }
            var sockets: [Socket] = []
            for (index, number) in (firstSocket..<firstSocket + count).enumerated() {
                try attempt(.configure, descriptorName(number)) { () throws(Errno) in
                    let flags = try SystemCall.make { fcntl(number, F_GETFD) }
                    try SystemCall.make { fcntl(number, F_SETFD, flags | FD_CLOEXEC) }
                }
                sockets.append(Socket(FileDescriptor(rawValue: number), name: names?[index] ?? "unknown"))
            }
            hasTaken = true
            return sockets
        }
    }

    // MARK: Notifications

    /// Reports something to the manager, all of it at once; does nothing without a manager that wants to know
    /// (`NOTIFY_SOCKET`).
    ///
    /// Waits for up to a second while the manager is behind. ``RunLoop/withGracefulShutdown(on:grace:_:)`` reports
    /// ``Notification/stopping``.
    ///
    /// - Throws: ``IOError`` that names the manager's address, such as with `Errno.connectionRefused`.
    public static func notify(_ notifications: Notification...) throws(IOError) {
        try send(notifications, timeout: .seconds(1))
    }

    /// - Parameter timeout: How long to wait for a manager whose queue is full.
    static func send(_ notifications: [Notification], timeout: Duration) throws(IOError) {
        guard let name = environmentVariable("NOTIFY_SOCKET"), !name.isEmpty else { return }
        let lines = Array(notifications.map(\.rawValue).joined(separator: "\n").utf8)
        guard !lines.isEmpty else { return }
        let deadline = Deadline.now + timeout
        try attempt(.send, name) { () throws(Errno) in
            let type = CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
            let socket = OwnedDescriptor(try SystemCall.make { Glibc.socket(AF_UNIX, type, 0) })
            let peer = try address(of: name).raw
            try SystemCall.make { reactor_connect(socket.number, peer) }
            while try lines.withBytes({ (bytes) throws(Errno) in
                try SystemCall.send(bytes, to: socket.number)
            }) == 0 {
                var requests: [1 of pollfd] = [pollfd(fd: socket.number, events: Int16(POLLOUT), revents: 0)]
                try SystemCall.poll(&requests, timeout: Deadline.now.duration(to: deadline).wholeMilliseconds)
                if requests[0].revents == 0 { throw .resourceTemporarilyUnavailable }
            }
        }
    }

    /// The address of a name: a path, or an abstract name after an at sign.
    private static func address(of name: String) throws(Errno) -> SocketAddress {
        let address: SocketAddress? =
            switch name.first {
            case "@": try? SocketAddress(unixAbstractName: name.utf8.dropFirst())
            case "/": try? SocketAddress(unixPath: FilePath(name))
            default: nil
            }
        guard let address else { throw .invalidArgument }
        return address
    }

    // MARK: The watchdog

    /// How long the manager waits for a sign of life before it ends the process (`WatchdogSec=`); nil without a watchdog.
    public static var watchdogTimeout: Duration? {
        guard let text = environmentVariable("WATCHDOG_USEC"), let time = Int64(text), time > 0 else {
            return nil
        }
        if let process = environmentVariable("WATCHDOG_PID"), pid_t(process) != getpid() { return nil }
        return .microseconds(time)
    }

    /// A timer that reports ``Notification/watchdog`` when half of ``watchdogTimeout`` has passed, again and again; nil without
    /// a watchdog.
    ///
    /// Add it to the loop that must not hang, in the modes that it runs in. The manager ends the process when that loop has
    /// made no pass in one of them for the time.
    ///
    /// ```swift
    /// if let watchdog = ServiceManager.watchdogTimer() { RunLoop.main.add(watchdog, forMode: .common) }
    /// ```
    public static func watchdogTimer() -> Timer? {
        watchdogTimeout.map { timeout in
            // A manager that is behind gets the next one.
            Timer(interval: timeout / 2, repeats: true, tolerance: timeout / 8, label: "watchdog") { _ in
                try? send([.watchdog], timeout: .zero)
            }
        }
    }
}
