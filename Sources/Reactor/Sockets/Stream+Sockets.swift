package import SystemPackage

extension SocketConnection {
    /// Creates the two streams that share the socket, which lasts until both are closed or released.
    func makeStreams() -> (input: InputStream, output: OutputStream) {
        (InputStream(backend: SocketInput(self)), OutputStream(backend: SocketOutput(self)))
    }
}

extension Stream {
    /// Creates two streams that share a connection to a host, given by name or as a numeric address. A nil pointer receives no
    /// stream. New code has one ``Connection``, and its ``Connection/streams`` where a pair is needed.
    ///
    /// Opening either stream resolves the name and connects, as a ``Connection`` does, and fails with an ``IOError``. Neither
    /// stream delivers an event before both are open, or before a pass of the loop, or a turn of the queue, of the one that is.
    /// Then both deliver ``Event/openCompleted`` before either delivers bytes or space. The connection ends when both streams
    /// are closed; a fault that one stream finds is also a fault of the other, which may read the bytes that arrived before.
    ///
    /// - Precondition: `port` is in 0...65535.
    public class func getStreamsToHost(
        withName hostname: String, port: Int, inputStream: UnsafeMutablePointer<InputStream?>?,
        outputStream: UnsafeMutablePointer<OutputStream?>?
    ) {
        guard let port = UInt16(exactly: port) else {
            fatalError("Stream.getStreamsToHost needs a port in 0...65535, not \(port).")
        }
        let streams = SocketConnection(connectingTo: .host(hostname, port: port)).makeStreams()
        unsafe inputStream?.pointee = streams.input
        unsafe outputStream?.pointee = streams.output
    }
}

extension Stream {
    /// The socket that the stream is a half of; nil for other streams, and for a descriptor's before it is opened.
    private var socket: SocketConnection? { (engine.backend as? any SocketHalf)?.connection }

    /// The socket's descriptor; nil before there is one and after it was closed. The stream owns it: do not
    /// close it.
    package var socketDescriptor: FileDescriptor? { socket?.descriptor }

    /// Protects the stream's connection: before it is open if it is not opened yet, else from the next byte
    /// on.
    ///
    /// - Returns: False for another stream than a socket's, and if the connection is closed, has failed, is
    ///   protected, or is to be protected by another security.
    package func protect(by security: any SocketSecurity) -> Bool { socket?.protect(by: security) ?? false }
}

// MARK: - Property keys

// Cocoa's keys, whose values are Cocoa's too. Most are public in ReactorFoundation.
extension Stream.PropertyKey {
    /// A `Bool`: whether the socket is closed with the second stream. True by default for a connection to a
    /// host.
    package static let shouldCloseNativeSocketKey = Self("kCFStreamPropertyShouldCloseNativeSocket")

    /// A `String`: the host's name, or its address; nil while unknown.
    package static let socketRemoteHostNameKey = Self("kCFStreamPropertySocketRemoteHostName")

    /// An `Int`: the peer's port; nil while unknown.
    package static let socketRemotePortNumberKey = Self("kCFStreamPropertySocketRemotePortNumber")

    static let securityLevel = Self("kCFStreamPropertySocketSecurityLevel")
    static let securitySettings = Self("kCFStreamPropertySSLSettings")
    static let socksProxy = Self("kCFStreamPropertySOCKSProxy")
    static let serviceType = Self("kCFStreamNetworkServiceType")
}
