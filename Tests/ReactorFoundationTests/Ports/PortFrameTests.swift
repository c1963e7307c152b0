#if DEBUG

import Glibc
import Reactor
import ReactorTesting
import Testing

@testable import ReactorFoundation

@Suite(.runLoop) struct PortFrameTests {
    private static let unix = PortSignature.Kind(
        family: PF_UNIX, type: Int32(SOCK_STREAM.rawValue), transport: 0)
    private static let frames = [
        PortFrame(number: 1, sender: .none, components: []),
        PortFrame(
            number: .max, sender: PortSignature(kind: .tcp, address: .ipv4(0x0102_0304, port: 0x5678)),
            components: [.data([]), .data([1, 2, 3])]),
        PortFrame(
            number: 3,
            sender: PortSignature(kind: .tcp, address: .ipv6(42, port: 7, scope: 3, flowInformation: 9)),
            components: [
                .port(PortSignature(kind: .tcp, address: .ipv4Loopback(port: 1))),
                .data([UInt8](repeating: 7, count: 99)[...]),
            ]),
        PortFrame(
            number: 4, sender: PortSignature(kind: unix, address: try! SocketAddress(unixPath: "/a/b")),
            components: []),
    ]

    /// Decodes `bytes`, which arrive in pieces of at most `size` bytes.
    private func decode(_ bytes: [UInt8], by size: Int = .max) throws(PortFrame.ParseError) -> [PortFrame] {
        var (decoder, rest, frames) = (PortFrameDecoder(), bytes[...], [PortFrame]())
        while !rest.isEmpty {
            try decoder.parsePrefix()
            let piece = rest.prefix(min(size, decoder.room))
            rest = rest.dropFirst(piece.count)
            if let frame = decoder.append(Array(piece)) { frames.append(try PortFrame(frame)) }
        }
        return frames
    }

    @Test(arguments: [1, 2, 7, 64, 1000])
    func `frames are decoded however the bytes are split`(size: Int) throws {
        #expect(try decode(Self.frames.flatMap { $0.bytes ?? [] }, by: size) == Self.frames)
    }

    @Test func `the encoding is that of Apple's systems and Foundation`() {
        let frame = PortFrame(number: 0, sender: .none, components: [.data(Array("ab".utf8)[...])])
        #expect(frame.bytes == PortBytes.message("ab"))
        let signature = PortSignature(kind: .tcp, address: .ipv4(0x7f00_0001, port: 258))
        #expect(signature.bytes == [2, 1, 6, 16, 16, 2, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    @Test func `a component that is longer than the rest of its message is refused`() throws {
        var bytes = try #require(PortFrame(number: 1, sender: .none, components: [.data([1, 2, 3])]).bytes)
        _ = try PortFrame(bytes)
        bytes[bytes.count - 4] += 1
        #expect(throws: PortFrame.ParseError.badComponent) { try PortFrame(bytes) }
    }

    @Test func `changing or cutting a frame anywhere does not crash the decoder`() {
        let bytes = Self.frames[2].bytes ?? []
        for index in bytes.indices {
            for value in [0, 1, 0x7F, 0x80, 0xFF] as [UInt8] {
                var changed = bytes
                changed[index] = value
                _ = try? decode(changed)
            }
        }
        for count in 16..<bytes.count {
            var cut = Array(bytes.prefix(count))
            cut[4...7] = UInt32(count).bigEndianBytes[...]
            _ = try? decode(cut)
        }
    }

    @Test func `replies go to the peer's own host and address family`() throws {
        func reply(to address: SocketAddress, from peer: SocketAddress) -> SocketAddress? {
            PortSignature(kind: .tcp, address: address).replyPort(of: peer)?.address
        }
        let path = try SocketAddress(unixPath: "/run/service")
        let peer = SocketAddress.ipv4(5, port: 99)
        let named =
            [.ipv4Any(port: 7), .ipv4(6, port: 7), .ipv6Any(port: 7), .ipv6Loopback(port: 7)]
            as [SocketAddress]
        for address in named {
            #expect(reply(to: address, from: peer) == .ipv4(5, port: 7))
            #expect(reply(to: address, from: .ipv6(0xffff_0000_0005, port: 99)) == .ipv4(5, port: 7))
            #expect(reply(to: address, from: .ipv6(5, port: 99, scope: 2)) == .ipv6(5, port: 7, scope: 2))
            #expect(reply(to: address, from: .unixUnnamed) == nil)
        }
        #expect(reply(to: path, from: peer) == nil && reply(to: path, from: .unixUnnamed) == path)
        #expect(reply(to: .ipv4Any(port: 0), from: peer) == nil)
    }

    @Test func `a remote peer's component reaches no local address`() throws {
        func isReachable(_ address: SocketAddress, from peer: SocketAddress) -> Bool {
            PortSignature(kind: .tcp, address: address).component(of: peer).isReachable
        }
        let remote = SocketAddress.ipv4(0xc000_0201, port: 99)
        let mapped = SocketAddress.ipv6(0xffff_7f00_0001, port: 7)
        let local = [try SocketAddress(unixPath: "/run/service"), .ipv4Loopback(port: 7), mapped]
        for address in local {
            #expect(!isReachable(address, from: remote))
            #expect(
                isReachable(address, from: .ipv6Loopback(port: 9)) && isReachable(address, from: .unixUnnamed)
            )
        }
        let wildcard = PortSignature(kind: .tcp, address: .ipv4Any(port: 7))
        #expect(wildcard.component(of: remote).address == .ipv4(0xc000_0201, port: 7))
    }
}

#endif
