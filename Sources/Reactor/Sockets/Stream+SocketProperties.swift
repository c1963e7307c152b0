extension Stream.PropertyKey {
    // MARK: Cocoa's

    /// A ``StreamSocketSecurityLevel``, or its name; it reads as the name. Holds for both halves, and is
    /// ``StreamSocketSecurityLevel/none`` unless it is set. With any other level neither half opens; set when they are
    /// open, it ends both.
    public static let socketSecurityLevelKey = Self("kCFStreamPropertySocketSecurityLevel")

    /// A dictionary of ``StreamSOCKSProxyConfiguration``, set before opening. This library knows no SOCKS: a pair that
    /// is asked for a proxy does not open (``StreamRequirementError/proxyUnavailable``), and never connects without
    /// one. Nil takes the request back. It cannot be read.
    public static let socksProxyConfigurationKey = Self("kCFStreamPropertySOCKSProxy")

    /// A ``StreamNetworkServiceTypeValue``, or its name; it reads as the name. Nil until it is set.
    public static let networkServiceType = Self("kCFStreamNetworkServiceType")

    /// Core Foundation's settings of TLS, a dictionary, which ask for it whatever they say, unless their level is none.
    static let securitySettings = Self("kCFStreamPropertySSLSettings")

    /// A `Bool`: whether the socket is closed with the second half. True for a pair to a host unless it is set.
    public static let shouldCloseNativeSocketKey = Self("kCFStreamPropertyShouldCloseNativeSocket")

    /// A `String`: the name of the host, or its address, as far as it is known.
    public static let socketRemoteHostNameKey = Self("kCFStreamPropertySocketRemoteHostName")

    /// An `Int`: the port at the other end, as far as it is known.
    public static let socketRemotePortNumberKey = Self("kCFStreamPropertySocketRemotePortNumber")

    // MARK: This library's own

    /// A `FileDescriptor`: the socket's. Nil before there is one, and after it is closed.
    public static let socketDescriptorKey = Self("ReactorSocketDescriptor")

    /// A ``SocketAddress``: who is at the other end, as far as it is known.
    public static let socketRemoteAddressKey = Self("ReactorSocketRemoteAddress")

    /// A ``SocketAddress``: where the socket itself is. Nil before there is one.
    public static let socketLocalAddressKey = Self("ReactorSocketLocalAddress")

    /// A `Duration`: how long looking up and connecting may take together; 75 seconds unless it is set, before
    /// opening.
    public static let socketConnectTimeoutKey = Self("ReactorSocketConnectTimeout")

    /// A `Duration`: when nothing has come or gone for that long, both halves fail with `Errno.timedOut`, the one that is
    /// read when all that had come has been read. Nil, as at first, for never. May be set at any time, for both halves.
    public static let socketIdleTimeoutKey = Self("ReactorSocketIdleTimeout")

    /// A `Duration`: when the peer has not taken a byte of those that wait for it for that long, or up to a quarter
    /// longer, both halves fail with `Errno.timedOut`. Nil, as at first, for never.
    public static let socketWriteTimeoutKey = Self("ReactorSocketWriteTimeout")

    /// A `Bool`: whether small writes are sent at once (`TCP_NODELAY`).
    public static let socketNoDelayKey = Self("ReactorSocketNoDelay")

    /// A `Bool`: whether the kernel finds out, hours later, that a silent peer has gone (`SO_KEEPALIVE`).
    public static let socketKeepAliveKey = Self("ReactorSocketKeepAlive")
}
