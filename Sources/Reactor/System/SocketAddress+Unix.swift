public import SystemPackage

extension SocketAddress {
    /// Why a name is not valid for a Unix-domain socket; unix(7).
    @nonexhaustive public enum UnixNameError: Error, Sendable, Hashable, CustomStringConvertible {
        /// The name is empty.
        case empty
        /// The name is longer than ``SocketAddress/unixNameLimit``.
        case tooLong(byteCount: Int)
        /// The name is a path that contains a zero byte.
        case containsZero

        /// The reason.
        public var description: String {
            switch self {
            case .empty: "the name of a Unix-domain socket is empty"
            case .tooLong(let count):
                "the name of a Unix-domain socket has \(count) bytes; the limit is \(SocketAddress.unixNameLimit)"
            case .containsZero: "the path of a Unix-domain socket contains a zero byte"
            }
        }
    }

    /// The limit of the bytes of a path or an abstract name: `sun_path` has 108, of which one is zero.
    public static let unixNameLimit = 107

    /// Creates the address of a Unix-domain socket in the file system.
    ///
    /// - Throws: ``UnixNameError`` for a path that is empty, longer than ``unixNameLimit``, or contains a
    ///   zero byte.
    public init(unixPath: String) throws(UnixNameError) { try self.init(unixPath: Array(unixPath.utf8)) }

    /// Creates the address of a Unix-domain socket in the file system.
    ///
    /// - Throws: ``UnixNameError`` for a path that is empty or longer than ``unixNameLimit``.
    public init(unixPath: FilePath) throws(UnixNameError) {
        let bytes = unsafe unixPath.withPlatformString { path in
            unsafe UnsafeBufferPointer(start: path, count: unixPath.length).map { UInt8(bitPattern: $0) }
        }
        try self.init(unixPath: bytes)
    }

    private init(unixPath: [UInt8]) throws(UnixNameError) {
        guard !unixPath.contains(0) else { throw .containsZero }
        try Self.checkUnixName(unixPath)
        self.init(.unix(unixPath))
    }

    /// Creates an abstract Unix-domain address: a name of any bytes, which is not in the file system and is
    /// released when the socket is closed.
    ///
    /// - Throws: ``UnixNameError`` for a name that is empty or longer than ``unixNameLimit``.
    public init(unixAbstractName name: some Sequence<UInt8>) throws(UnixNameError) {
        let name = Array(name)
        try Self.checkUnixName(name)
        self.init(.unix([0] + name))
    }

    /// The path of a Unix-domain address; nil if it has none.
    public var unixPath: FilePath? {
        guard let bytes = unixPathBytes else { return nil }
        return unsafe FilePath(platformString: bytes.map { CInterop.PlatformChar(bitPattern: $0) } + [0])
    }

    /// The name of an abstract Unix-domain address, without the zero byte before it; nil if it has none.
    public var unixAbstractName: [UInt8]? {
        guard case .unix(let bytes) = storage, bytes.first == 0 else { return nil }
        return Array(bytes.dropFirst())
    }

    var unixPathBytes: [UInt8]? {
        guard case .unix(let bytes) = storage, let first = bytes.first, first != 0 else { return nil }
        return bytes
    }

    private static func checkUnixName(_ name: [UInt8]) throws(UnixNameError) {
        guard !name.isEmpty else { throw .empty }
        guard name.count <= unixNameLimit else { throw .tooLong(byteCount: name.count) }
    }
}
