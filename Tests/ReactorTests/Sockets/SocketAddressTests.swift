import Glibc
import Reactor
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
        "127.0.0.1: 80",
        "127.1:80", "127.0.0.01:80", "0x7f.0.0.1:80", "127.0.0.1%00:80", "[127.0.0.1]:80", "localhost:80",
        "::1:80",
        "::1", "[::1]", "[::1]:", "[::1:80", "::1]:80", "[]:80", "[::1]80", "[::1%]:80",
        "[::1%no-such-interface]:80",
        "[::1%4294967296]:80", "[::1]%00:80", "[1::2::3]:80", "unix-abstract:", "unix:a%00", "unix:a%0",
        "unix:%zz",
        "unix:" + String(repeating: "x", count: 108),
    ])
    func `text that is not an address is nil`(text: String) {
        #expect(SocketAddress(text) == nil)
        #expect(SocketAddress(text.withZeros) == nil)
    }

    @Test func `a host without a port may have brackets`() {
        #expect(SocketAddress("127.0.0.1", port: 1) == .ipv4Loopback(port: 1))
        #expect(SocketAddress("::1", port: 2) == .ipv6Loopback(port: 2))
        #expect(SocketAddress("[::1]", port: 3) == .ipv6Loopback(port: 3))
        #expect(SocketAddress("[127.0.0.1]", port: 4) == nil)
        #expect(SocketAddress("localhost", port: 5) == nil)
        #expect(SocketAddress("", port: 6) == nil)
        #expect(SocketAddress("::1\0", port: 6) == nil)
        #expect(SocketAddress.ipv4Loopback(port: 7).host == "127.0.0.1")
        #expect(SocketAddress.ipv6Loopback(port: 7).host == "::1")
        #expect(SocketAddress.unixUnnamed.host == nil)
    }

    @Test func `a scope is an interface's name or number`() throws {
        let loopback = try #require(NetworkInterface(named: "lo"))
        #expect(loopback.name == "lo")
        let address = SocketAddress.ipv6(0xfe80 << 112 | 1, port: 80, scope: loopback.index)
        #expect(address.description == "[fe80::1%lo]:80")
        #expect(SocketAddress("[fe80::1%lo]:80") == address)
        #expect(SocketAddress("fe80::1%\(loopback.index)", port: 80) == address)
        let stranger = SocketAddress.ipv6(0xfe80 << 112 | 1, port: 80, scope: 4_000_000_000)
        #expect(stranger.description == "[fe80::1%4000000000]:80")
        #expect(SocketAddress(stranger.description) == stranger)
        #expect(NetworkInterface(named: "lo\0") == nil)
        #expect(NetworkInterface.any.name == nil)
    }

    @Test func `addresses that differ in any part are not equal`() {
        let all: [SocketAddress] = [
            .ipv4(1, port: 1), .ipv4(2, port: 1), .ipv4(1, port: 2), .ipv6(1, port: 1), .ipv6(2, port: 1),
            .ipv6(1, port: 2), .ipv6(1, port: 1, scope: 1), .ipv6(1, port: 1, flowInformation: 1),
            .unixUnnamed,
            try! SocketAddress(unixPath: "a"), try! SocketAddress(unixAbstractName: "a".utf8),
        ]
        #expect(Set(all).count == all.count)
        #expect(Set(all + all).count == all.count)
    }

    @Test(arguments: [
        ("127.0.0.1", "loopback"), ("127.255.0.9", "loopback"), ("128.0.0.1", ""), ("::1", "loopback"),
        ("::2", ""),
        ("::ffff:127.0.0.1", "loopback"), ("0.0.0.0", "any"), ("::", "any"), ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"), ("240.0.0.1", ""), ("ff02::1", "multicast"),
        ("169.254.3.4", "link-local"),
        ("fe80::1", "link-local"), ("febf::1", "link-local"), ("fec0::1", ""), ("::7f00:1", ""),
    ])
    func `addresses are classified`(host: String, meaning: String) throws {
        let address = try #require(SocketAddress(host, port: 9))
        #expect(address.isLoopback == (meaning == "loopback"))
        #expect(address.isAny == (meaning == "any"))
        #expect(address.isMulticast == (meaning == "multicast"))
        #expect(address.isLinkLocal == (meaning == "link-local"))
    }

    @Test func `an address has the parts of its family`() {
        let ipv6 = SocketAddress.ipv6(7, port: 1, scope: 2, flowInformation: 3)
        #expect(ipv6.family == .ipv6)
        #expect((ipv6.ipv6, ipv6.port, ipv6.scope, ipv6.flowInformation) == (7, 1, 2, 3))
        #expect(ipv6.ipv4 == nil)
        let ipv4 = SocketAddress.ipv4(7, port: 1)
        #expect(ipv4.family == .ipv4)
        #expect((ipv4.ipv4, ipv4.port, ipv4.scope, ipv4.flowInformation) == (7, 1, nil, nil))
        #expect(ipv4.ipv6 == nil)
        #expect(SocketAddress.unixUnnamed.port == nil)
        #expect(SocketAddress.unixUnnamed.family == .unix)
        #expect(!SocketAddress.unixUnnamed.isLoopback)
    }

    @Test func `an address takes no more memory than a sockaddr_in6`() {
        #expect(MemoryLayout<SocketAddress>.size == MemoryLayout<sockaddr_in6>.size)
        #expect(MemoryLayout<SocketAddress?>.stride <= 32)
    }
}

extension String {
    /// This with a zero byte for each %00: in the name of a test case one would make the test run's output no text.
    var withZeros: String {
        split(separator: "%00", omittingEmptySubsequences: false).joined(separator: "\0")
    }
}
