import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// The addresses of sockets, and `sockaddr`s.
@Suite(.runLoop) struct KernelAddressTests {
    @Test(arguments: [
        SocketAddress.ipv4(0x0102_0304, port: 0x0506),
        .ipv6(
            0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10, port: 0x1112, scope: 3, flowInformation: 0x0004_5678),
        .unixUnnamed,
        try! SocketAddress(unixPath: "/a/b"),
        try! SocketAddress(unixPath: String(repeating: "x", count: 107)),
        try! SocketAddress(unixAbstractName: [0, 0, 7, 0]),
        address([1, 0] + Array(repeating: 0x78, count: 108))!,  // no zero at its end
        address([16, 0, 1, 2, 3])!,
        address([0, 0])!,
    ])
    func `an address survives its conversion to a sockaddr`(address: SocketAddress) {
        let (again, fromBytes) = address.withSockAddr { pointer, length in
            (
                SocketAddress(pointer, length: length),
                SocketAddress(RawSpan(_unsafeStart: pointer, byteCount: Int(length)))
            )
        }
        #expect(again == address)
        #expect(fromBytes == address)
    }

    @Test(arguments: [[1, 0] + Array(repeating: 0x78, count: 108), [16, 0, 1, 2, 3], [0, 0]] as [[UInt8]])
    func `a sockaddr of an unusual form survives its conversion`(bytes: [UInt8]) {
        let again = address(bytes[...])?.withSockAddr { pointer, length in
            Array(UnsafeRawBufferPointer(start: pointer, count: Int(length)))
        }
        #expect(again == bytes)
    }

    @Test func `a sockaddr has ports and addresses in network order`() {
        let bytes = SocketAddress.ipv4(0x0102_0304, port: 0x0506).withSockAddr { pointer, length in
            Array(UnsafeRawBufferPointer(start: pointer, count: Int(length))[2..<8])
        }
        #expect(bytes == [5, 6, 1, 2, 3, 4])
    }

    @Test func `a path has a zero byte at its end, an abstract name has not`() throws {
        let path = try SocketAddress(unixPath: "abc").withSockAddr { $1 }
        let name = try SocketAddress(unixAbstractName: "abc".utf8).withSockAddr { $1 }
        #expect(path == 2 + 3 + 1)
        #expect(name == 2 + 1 + 3)
        #expect(SocketAddress.unixUnnamed.withSockAddr { $1 } == 2)
    }

    @Test func `a sockaddr that is too short or too long is nil`() {
        let bytes = [UInt8](repeating: 0, count: 200)
        for count in [0, 1, 129, 200] { #expect(address(bytes.prefix(count)) == nil) }
        for (family, size) in [(AF_INET, 16), (AF_INET6, 28)] {
            var bytes = bytes
            bytes[0] = UInt8(family)
            #expect(address(bytes.prefix(size - 1)) == nil)
            #expect(address(bytes.prefix(size)) != nil)
        }
    }

    @Test func `a socket has its own address and its peer's`() throws {
        let (server, client) = (
            try SocketPeer(family: AF_INET, SOCK_DGRAM), try SocketPeer(family: AF_INET, SOCK_DGRAM)
        )
        try server.bind(to: .ipv4Loopback(port: 0))
        let address = try SocketAddress.local(of: server.descriptor)
        #expect(address.isLoopback)
        #expect(address.port != 0)
        #expect(throws: Errno.socketNotConnected) { try SocketAddress.peer(of: client.descriptor) }
        try client.connect(to: address)
        #expect(try SocketAddress.peer(of: client.descriptor) == address)
    }

    @Test func `an IPv6 socket has its own address`() throws {
        let socket = try SocketPeer(family: AF_INET6, SOCK_DGRAM)
        try socket.bind(to: .ipv6Loopback(port: 0))
        #expect(try SocketAddress.local(of: socket.descriptor).ipv6 == 1)
    }

    @Test func `Unix-domain sockets have paths, abstract names or no name`() throws {
        let folder = TemporaryFolder()
        let path = folder.path("socket")
        let (server, client) = (
            try SocketPeer(family: AF_UNIX, SOCK_DGRAM), try SocketPeer(family: AF_UNIX, SOCK_DGRAM)
        )
        #expect(try SocketAddress.local(of: server.descriptor) == .unixUnnamed)
        try server.bind(to: try SocketAddress(unixPath: path))
        #expect(try SocketAddress.local(of: server.descriptor).unixPath == FilePath(path))
        try client.bind(to: .unixUnnamed)
        let name = try #require(try SocketAddress.local(of: client.descriptor).unixAbstractName)
        #expect(!name.isEmpty)
        try client.connect(to: try SocketAddress(unixPath: path))
        #expect(try SocketAddress.peer(of: client.descriptor).unixPath == FilePath(path))
    }

    @Test func `the longest paths can be bound to and read back`() throws {
        let folder = TemporaryFolder()
        let path = (folder.path.string + "/").padded(to: 107)
        let socket = try SocketPeer(family: AF_UNIX, SOCK_DGRAM)
        try socket.bind(to: try SocketAddress(unixPath: path))
        #expect(try SocketAddress.local(of: socket.descriptor) == SocketAddress(unixPath: path))
    }

    @Test func `an address of another family keeps its bytes`() throws {
        let socket = try SocketPeer(family: AF_NETLINK, SOCK_DGRAM)
        let address = try SocketAddress.local(of: socket.descriptor)
        #expect(address.family.rawValue == UInt16(AF_NETLINK))
        #expect(address.description.contains("16"))
        #expect(address.port == nil)
    }

    @Test func `a descriptor that is not a socket has no address`() throws {
        let pipe = try TestPipe()
        #expect(throws: Errno.notSocket) { try SocketAddress.local(of: pipe.readEnd) }
        #expect(throws: Errno.badFileDescriptor) { try SocketAddress.peer(of: FileDescriptor(rawValue: -1)) }
    }
}

private func address(_ bytes: ArraySlice<UInt8>) -> SocketAddress? { SocketAddress(bytes.span.bytes) }

extension String {
    fileprivate func padded(to count: Int) -> String {
        self + String(repeating: "x", count: count - utf8.count)
    }
}
