public import SystemPackage

extension SocketAddress {
    /// The limit of the bytes of a path or an abstract name: `sun_path` has 108, of which one is zero.
    static let unixNameLimit = 107

    /// Creates the address of a Unix-domain socket in the file system; unix(7).
    ///
    /// - Throws: `Errno.invalidArgument` for an empty path, `Errno.fileNameTooLong` for more than 107 bytes.
    public init(unixPath: FilePath) throws(Errno) {
        let bytes = unsafe unixPath.withPlatformString { path in
            unsafe UnsafeBufferPointer(start: path, count: unixPath.length).map { UInt8(bitPattern: $0) }
        }
        try Self.checkUnixName(bytes)
        self.init(.unix(bytes))
    }

    /// Creates an abstract Unix-domain address: a name of any bytes, which is not in the file system and is
    /// released when the socket is closed.
    ///
    /// - Throws: `Errno.invalidArgument` for an empty name, `Errno.fileNameTooLong` for more than 107 bytes.
    public init(unixAbstractName name: some Sequence<UInt8>) throws(Errno) {
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

    private static func checkUnixName(_ name: [UInt8]) throws(Errno) {
        guard !name.isEmpty else { throw .invalidArgument }
        guard name.count <= unixNameLimit else { throw .fileNameTooLong }
    }
}
