public import SystemPackage

extension SocketAddress {
    /// Why a name cannot be that of a Unix-domain socket; unix(7).
    public enum UnixNameError: Error, Sendable, Hashable, CustomStringConvertible {
        /// It has no bytes.
        case empty
        /// It has more bytes than the kernel keeps.
        case tooLong(byteCount: Int)
        /// It is a path with a zero byte, which would end it.
        case containsZero

        /// What is wrong, in words.
        public var description: String {
            switch self {
            case .empty: "the name of a Unix-domain socket is empty"
            case .tooLong(let count):
                "the name of a Unix-domain socket has \(count) bytes, and may have \(SocketAddress.longestUnixName)"
            case .containsZero: "the path of a Unix-domain socket contains a zero byte"
            }
        }
    }

    /// The most bytes of a path or an abstract name: `sun_path` has 108, of which one is a zero.
    public static let longestUnixName = 107

    /// Makes the address of the Unix-domain socket at `unixPath`, in the file system.
    ///
    /// - Throws: ``UnixNameError`` for a path that is empty, longer than ``longestUnixName``, or has a zero
    ///   byte in it.
    public init(unixPath: String) throws(UnixNameError) { try self.init(unixPath: Array(unixPath.utf8)) }

    /// Makes the address of the Unix-domain socket at `unixPath`, in the file system.
    ///
    /// - Throws: ``UnixNameError`` for a path that is empty or longer than ``longestUnixName``.
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

    /// Makes an abstract Unix-domain address: a name of any bytes, which is in no file system, and which is
    /// free again when its socket is closed.
    ///
    /// - Throws: ``UnixNameError`` for a name that is empty or longer than ``longestUnixName``.
    public init(unixAbstractName name: some Sequence<UInt8>) throws(UnixNameError) {
        let name = Array(name)
        try Self.checkUnixName(name)
        self.init(.unix([0] + name))
    }

    /// The path of a Unix-domain address that has one.
    public var unixPath: FilePath? {
        guard let bytes = unixPathBytes else { return nil }
        return unsafe (bytes + [0]).withUnsafeBufferPointer { bytes in
            unsafe bytes.withMemoryRebound(to: CInterop.PlatformChar.self) { path in
                unsafe FilePath(platformString: path.baseAddress!)
            }
        }
    }

    /// The name, without the zero byte before it, of an abstract Unix-domain address.
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
        guard name.count <= longestUnixName else { throw .tooLong(byteCount: name.count) }
    }
}
