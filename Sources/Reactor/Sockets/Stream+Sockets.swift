public import SystemPackage

extension Stream {
    /// Makes two streams that share a socket to be connected to a host: by name, or by an address as text.
    ///
    /// Nothing happens before one of them is opened. Then the name is looked up (getaddrinfo(3)) and its addresses
    /// are tried, a quarter of a second one after another and families in turns, until one answers (RFC 8305); all
    /// off the loop's thread. Meanwhile the status is ``Status/opening``. Each half tells of its opening, or of its
    /// fault, if it was opened itself; one that is opened later is open at once. Opening fails with a
    /// ``ResolverError`` if the name is not known, with the last address's `Errno` if none answers, and with
    /// `Errno.timedOut` when ``PropertyKey/socketConnectTimeoutKey`` has passed.
    ///
    /// The connection ends, and the peer is told so, when both halves are closed; ``OutputStream/shutDown()`` ends
    /// one direction. A fault that one half finds is a fault of the other too, which may first read what had come
    /// before.
    public static func socketPair(
        toHost host: String, port: UInt16
    ) -> (input: InputStream, output: OutputStream) {
        pair(SocketChannel(connectingTo: .host(host, port: port)))
    }

    /// As ``socketPair(toHost:port:)``, to an address that is known: of IPv4, IPv6, or a Unix-domain socket.
    public static func socketPair(to address: SocketAddress) -> (input: InputStream, output: OutputStream) {
        pair(SocketChannel(connectingTo: .address(address)))
    }

    /// Makes two streams that share a connected stream socket, which is open when ``open()`` returns.
    ///
    /// Its file status flags stay as they are: reading and writing do not depend on them.
    /// - Parameters:
    ///   - descriptor: A connected socket; both halves use it.
    ///   - closeWhenDone: Whether it is closed with the second half; ``PropertyKey/shouldCloseNativeSocketKey``
    ///     can change that.
    /// - Precondition: `descriptor` is not negative.
    public static func socketPair(
        descriptor: FileDescriptor, closeWhenDone: Bool = false
    ) -> (input: InputStream, output: OutputStream) {
        precondition(descriptor.rawValue >= 0, "a stream needs an open descriptor")
        return pair(SocketChannel(DescriptorHolder(descriptor.rawValue, closesWhenDone: closeWhenDone)))
    }

    private static func pair(_ channel: SocketChannel) -> (input: InputStream, output: OutputStream) {
        (InputStream(backend: SocketInput(channel)), OutputStream(backend: SocketOutput(channel)))
    }

    /// As ``socketPair(toHost:port:)``, in Cocoa's spelling: what a pointer is nil for is not handed out.
    ///
    /// - Precondition: `port` is between 0 and 65,535.
    public class func getStreamsToHost(
        withName hostname: String, port: Int, inputStream: UnsafeMutablePointer<InputStream?>?,
        outputStream: UnsafeMutablePointer<OutputStream?>?
    ) {
        guard let port = UInt16(exactly: port) else { preconditionFailure("a port is between 0 and 65535") }
        let pair = socketPair(toHost: hostname, port: port)
        unsafe inputStream?.pointee = pair.input
        unsafe outputStream?.pointee = pair.output
    }
}
