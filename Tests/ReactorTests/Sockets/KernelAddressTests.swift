import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// The addresses of sockets, and `sockaddr`s.
@Suite(.runLoop) struct KernelAddressTests {
    /// The last has no zero at its end.
    private static let unusual: [[UInt8]] = [
        [0, 0], [16, 0, 1, 2, 3], [1, 0] + Array(repeating: 0x78, count: 108),
    ]

    @Test(
        arguments: [
            SocketAddress.ipv4(0x0102_0304, port: 0x0506),
            .ipv6(
                0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10, port: 0x1112, scope: 3, flowInformation: 0x4_5678),
            .unixUnnamed,
            try! SocketAddress(unixPath: "/a/b"),
            try! SocketAddress(unixPath: String(repeating: "x", count: 107)),
            try! SocketAddress(unixAbstractName: [0, 0, 7, 0]),
        ] + unusual.map { address($0[...])! })
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

    @Test func `a sockaddr is in network order, and keeps bytes of an unusual form`() throws {
        func bytes(of address: SocketAddress) -> [UInt8] {
            address.withSockAddr { Array(UnsafeRawBufferPointer(start: $0, count: Int($1))) }
        }
        #expect(bytes(of: .ipv4(0x0102_0304, port: 0x0506))[2..<8] == [5, 6, 1, 2, 3, 4])
        for form in Self.unusual { #expect(try bytes(of: #require(address(form[...]))) == form) }
        // A path has a zero byte at its end, an abstract name has not.
        #expect(try bytes(of: SocketAddress(unixPath: "abc")).count == 2 + 3 + 1)
        #expect(try bytes(of: SocketAddress(unixAbstractName: "abc".utf8)).count == 2 + 1 + 3)
        #expect(bytes(of: .unixUnnamed).count == 2)
    }

    @Test func `a sockaddr that is too short or too long is nil`() {
        let bytes = [UInt8](repeating: 0, count: 200)
        for count in [0, 1, 129, 200] { #expect(address(bytes.prefix(count)) == nil) }
        for (family, size) in [(AF_INET, 16), (AF_INET6, 28)] {
            let bytes = [UInt8(family)] + bytes
            #expect(address(bytes.prefix(size - 1)) == nil)
            #expect(address(bytes.prefix(size)) != nil)
        }
    }

    @Test func `a Unix-domain socket may have no name, one of the kernel's, or the longest path`() throws {
        let folder = TemporaryFolder()
        let start = folder.path.string + "/"
        let longest = try SocketAddress(
            unixPath: start + String(repeating: "x", count: 107 - start.utf8.count))
        let sockets = try (0..<2).map { _ in try SocketPeer(family: AF_UNIX, SOCK_DGRAM) }
        #expect(try sockets[0].localAddress == .unixUnnamed)
        try sockets[0].bind(to: .unixUnnamed)
        #expect(try sockets[0].localAddress.unixAbstractName?.isEmpty == false)
        try sockets[1].bind(to: longest)
        #expect(try sockets[1].localAddress == longest)
    }

    @Test func `a descriptor that is not a socket has no address`() throws {
        let pipe = try TestPipe()
        #expect(throws: Errno.notSocket) { try SocketAddress.local(of: pipe.readEnd) }
        #expect(throws: Errno.badFileDescriptor) { try SocketAddress.peer(of: FileDescriptor(rawValue: -1)) }
    }
}

private func address(_ bytes: ArraySlice<UInt8>) -> SocketAddress? { SocketAddress(bytes.span.bytes) }
