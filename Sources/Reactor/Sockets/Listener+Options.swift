public import SystemPackage

extension Listener {
    /// What is set before a listener listens.
    public struct Options: Sendable, Hashable {
        /// The most connections that wait to be accepted; listen(2). The kernel keeps it below
        /// `net.core.somaxconn`.
        public var backlog: Int
        /// Whether the address may be used though connections of an earlier server at it are still coming to
        /// their end (`SO_REUSEADDR`): a server can be restarted at once. IP only.
        public var reusesAddress: Bool
        /// Whether other listeners of this user that say the same may listen at the same address and port,
        /// and the kernel shares the connections out among them (`SO_REUSEPORT`).
        public var reusesPort: Bool
        /// Whether an IPv6 listener takes no connections over IPv4 (`IPV6_V6ONLY`). By default it does take
        /// them, if its address is ``SocketAddress/ipv6Any(port:)``, whatever the system's own default.
        public var isIPv6Only: Bool
        /// Whether what is written to an accepted connection is sent at once (`TCP_NODELAY`). Else a message
        /// that takes more than one write may wait for the peer's acknowledgement, which comes up to 40 ms
        /// late.
        public var sendsAtOnce: Bool
        /// Who may connect to a Unix-domain path: who may write to it. Nil for what the process's umask(2)
        /// leaves.
        public var permissions: FilePermissions?

        /// Makes options; the defaults suit most servers.
        public init(
            backlog: Int = 4096, reusesAddress: Bool = true, reusesPort: Bool = false,
            isIPv6Only: Bool = false,
            sendsAtOnce: Bool = true, permissions: FilePermissions? = nil
        ) {
            self.backlog = backlog
            self.reusesAddress = reusesAddress
            self.reusesPort = reusesPort
            self.isIPv6Only = isIPv6Only
            self.sendsAtOnce = sendsAtOnce
            self.permissions = permissions
        }
    }
}
