import CReactorLinux

/// The process at the other end of a Unix-domain socket, as the kernel knows it; unix(7).
public struct PeerCredentials: Sendable, Hashable {
    /// The process's number; 0 if it has none in this process's PID namespace. It may have ended since, and another may
    /// have the number.
    public let processIdentifier: Int32
    /// The effective user.
    public let userIdentifier: UInt32
    /// The effective group.
    public let groupIdentifier: UInt32

    /// Nil for none.
    init?(_ raw: reactor_credentials) {
        guard raw.user != .max else { return nil }
        (processIdentifier, userIdentifier, groupIdentifier) = (raw.process, raw.user, raw.group)
    }
}
