package import SystemPackage

/// A host of a ``Network``.
package typealias NetworkHost = any AnyObject & Sendable

/// Connects sockets with IP addresses on the thread of a test, in place of the kernel. ReactorTesting has the only one.
/// Its sockets are Unix-domain ones, so that reading, writing and polling are the kernel's.
package protocol Network: AnyObject, Sendable {
    /// The host that the calling code belongs to.
    var currentHost: NetworkHost { get }

    /// A socket that listens at an IP address: socket(2), bind(2) and listen(2).
    func listen(
        at address: SocketAddress, backlog: CInt, isIPv6Only: Bool, reusesPort: Bool
    ) throws(Errno) -> FileDescriptor
    /// Called before each accept(2); what it throws is that call's error.
    func willAccept(from listener: CInt) throws(Errno)
    /// The peer's address of an accepted connection; `peer` is the kernel's, which is returned for others.
    func accepted(_ descriptor: FileDescriptor, from peer: SocketAddress) -> SocketAddress

    /// Begins to connect to an IP address from `host`; nil for ``currentHost``.
    ///
    /// - Parameter completion: Called with a connected socket, or the error of connect(2), after this has returned.
    /// - Returns: The attempt, which ends when it is released.
    func connect(
        to address: SocketAddress, from host: NetworkHost?,
        completion: @escaping (Result<FileDescriptor, Errno>) -> Void
    ) throws(Errno) -> AnyObject

    /// The output of `socket` is about to be shut down.
    func willEndOutput(of socket: CInt)
    /// The connection of `socket` is about to be shut down: its peer finds that it was reset.
    func willReset(_ socket: CInt)

    /// A descriptor, which may be any file's, has been duplicated.
    func hasDuplicated(_ descriptor: CInt)
    /// Closes a descriptor, which may be any file's.
    func close(_ descriptor: CInt)

    /// Looks up a name.
    ///
    /// - Parameter completion: Called with the addresses; or with none, and a code of getaddrinfo(3).
    func resolve(
        _ name: String, port: UInt16, _ family: SocketAddress.Family,
        completion: @escaping @Sendable ([SocketAddress], CInt) -> Void)

    /// getsockname(2) and getpeername(2); nil for a socket that is not the network's, or not connected.
    func localAddress(of socket: FileDescriptor) -> SocketAddress?
    func peerAddress(of socket: FileDescriptor) -> SocketAddress?

    /// A random number that the test's seed decides on.
    func random(upTo limit: Int128) -> Int128

    // MARK: Datagrams

    /// A datagram socket for IP addresses.
    func datagramSocket(_ family: SocketAddress.Family) throws(Errno) -> FileDescriptor
    func bindDatagrams(of socket: FileDescriptor, to address: SocketAddress, isIPv6Only: Bool) throws(Errno)
    func connectDatagrams(of socket: FileDescriptor, to peer: SocketAddress) throws(Errno)
    /// sendto(2), which never lacks room.
    func send(_ bytes: RawSpan, from socket: FileDescriptor, to address: SocketAddress?) throws(Errno)
    /// The sender of a datagram that came from `sender` according to the kernel; nil for one that is not the network's.
    func sender(of sender: SocketAddress?) -> SocketAddress?
}
