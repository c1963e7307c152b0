import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketAddressTests {

    @Test(arguments: [
        ("127.0.0.1:80", SocketAddress.ipv4(0x7f00_0001, port: 80)),
        ("0.0.0.0:0", .ipv4Any(port: 0)),
        ("255.255.255.255:65535", .ipv4(.max, port: .max)),
        ("[::1]:80", .ipv6Loopback(port: 80)),
        ("[::]:0", .ipv6Any(port: 0)),
        ("[2001:db8::ff]:443", .ipv6(0x2001_0db8_0000_0000_0000_0000_0000_00ff, port: 443)),
        ("[::ffff:127.0.0.1]:1", .ipv6(0xffff_7f00_0001, port: 1)),
        ("[fe80::1%lo]:80", .ipv6(0xfe80 << 112 | 1, port: 80, scope: NetworkInterface(named: "lo")!.index)),
        ("[fe80::1%4000000000]:80", .ipv6(0xfe80 << 112 | 1, port: 80, scope: 4_000_000_000)),
        ("unix:/run/a socket", try! SocketAddress(unixPath: "/run/a socket")),
        ("unix:relative", try! SocketAddress(unixPath: "relative")),
        ("unix:100%25%0A", try! SocketAddress(unixPath: "100%\n")),
        ("unix:/żółw", try! SocketAddress(unixPath: "/żółw")),
        ("unix-abstract:a%00b%FF", try! SocketAddress(unixAbstractName: [0x61, 0, 0x62, 0xff])),
        ("unix:", .unixUnnamed),
    ])
    func `an address survives its conversion to text`(text: String, address: SocketAddress) {
        #expect(SocketAddress(text) == address)
        #expect(address.description == text)
    }

    @Test(arguments: [
        "", ":", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:+80", "127.0.0.1:-1", "127.0.0.1:65536",
        "127.0.0.1: 80", "127.1:80", "127.0.0.01:80", "0x7f.0.0.1:80", "127.0.0.1%00:80", "[127.0.0.1]:80",
        "localhost:80", "::1:80", "::1", "[::1]", "[::1]:", "[::1:80", "::1]:80", "[]:80", "[::1]80",
        "[::1%]:80", "[::1%no-such-interface]:80", "[::1%4294967296]:80", "[::1%+1]:80", "[::1]%00:80",
        "[1::2::3]:80",
        "unix-abstract:", "unix:a%00", "unix:a%0", "unix:%zz", "unix:" + String(repeating: "x", count: 108),
    ])
    func `text that is not an address is nil`(text: String) {
        #expect(SocketAddress(text) == nil)
        #expect(SocketAddress(text.withZeros) == nil)
    }

    @Test func `a host without a port may have brackets and a scope`() throws {
        let loopback = try #require(NetworkInterface(named: "lo"))
        let hosts: [(String, SocketAddress?)] = [
            ("127.0.0.1", .ipv4Loopback(port: 1)), ("::1", .ipv6Loopback(port: 1)),
            ("[::1]", .ipv6Loopback(port: 1)), ("[127.0.0.1]", nil), ("localhost", nil), ("", nil),
            ("::1\0", nil),
            ("fe80::1%\(loopback.index)", .ipv6(0xfe80 << 112 | 1, port: 1, scope: loopback.index)),
        ]
        for (host, address) in hosts { #expect(SocketAddress(host, port: 1) == address) }
        #expect(SocketAddress.ipv4Loopback(port: 7).host == "127.0.0.1")
        #expect(SocketAddress.ipv6Loopback(port: 7).host == "::1")
        #expect(SocketAddress.unixUnnamed.host == nil)
        #expect(loopback.name == "lo" && NetworkInterface.any.name == nil)
        #expect(NetworkInterface(named: "lo\0") == nil)
    }

    @Test func `addresses that differ in any part are not equal`() {
        let all: [SocketAddress] = [
            .ipv4(1, port: 1), .ipv4(2, port: 1), .ipv4(1, port: 2), .ipv6(1, port: 1), .ipv6(2, port: 1),
            .ipv6(1, port: 2), .ipv6(1, port: 1, scope: 1), .ipv6(1, port: 1, flowInformation: 1),
            .unixUnnamed, try! SocketAddress(unixPath: "a"), try! SocketAddress(unixAbstractName: "a".utf8),
        ]
        #expect(Set(all).count == all.count)
        #expect(Set(all + all).count == all.count)
    }

    @Test(arguments: [
        ("loopback", ["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"]), ("any", ["0.0.0.0", "::"]),
        ("multicast", ["224.0.0.1", "239.255.255.255", "ff02::1"]),
        ("link-local", ["169.254.3.4", "fe80::1", "febf::1"]),
        ("global", ["128.0.0.1", "::2", "240.0.0.1", "fec0::1", "::7f00:1"]),
    ])
    func `addresses are classified`(meaning: String, hosts: [String]) throws {
        for host in hosts {
            let address = try #require(SocketAddress(host, port: 9))
            #expect(address.isLoopback == (meaning == "loopback"))
            #expect(address.isAny == (meaning == "any"))
            #expect(address.isMulticast == (meaning == "multicast"))
        }
    }

    @Test func `a Unix-domain name has 1 to 107 bytes`() throws {
        let longest = String(repeating: "x", count: 107)
        #expect(try SocketAddress(unixPath: FilePath(longest)).unixPath == FilePath(longest))
        let makers: [(String) throws -> SocketAddress] = [
            { try SocketAddress(unixPath: FilePath($0)) }, { try SocketAddress(unixAbstractName: $0.utf8) },
        ]
        for make in makers {
            #expect(throws: Errno.fileNameTooLong) { try make(longest + "x") }
            #expect(throws: Errno.invalidArgument) { try make("") }
        }
    }

    /// Addresses as letters: capitals are IPv6, small ones IPv4, and a dot is a Unix-domain socket.
    private func addresses(_ letters: String) -> [SocketAddress] {
        letters.utf8.map { letter in
            switch letter {
            case 0x2e: .unixUnnamed
            case ..<0x60: .ipv6(UInt128(letter), port: 1)
            default: .ipv4(UInt32(letter), port: 1)
            }
        }
    }

    @Test(arguments: [
        ("", ""), ("A", "A"), ("ABC", "ABC"), ("ABab", "AaBb"), ("abAB", "aAbB"), ("ABCDa", "AaBCD"),
        ("Aabcd", "Aabcd"), ("AB.a", "A.Ba"),
    ])
    func `families alternate, and each keeps its order`(letters: String, wanted: String) {
        #expect(addresses(letters).interleavingFamilies() == addresses(wanted))
    }
}

extension String {
    /// This with a zero byte for each %00: in the name of a test case one would make the test run's output no text.
    var withZeros: String {
        split(separator: "%00", omittingEmptySubsequences: false).joined(separator: "\0")
    }
}

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
            try! SocketAddress(unixPath: FilePath(String(repeating: "x", count: 107))),
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
            unixPath: FilePath(start + String(repeating: "x", count: 107 - start.utf8.count)))
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
