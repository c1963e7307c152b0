import Glibc
import Reactor
import Testing

@testable import ReactorFoundation

@Suite struct PortFrameTests {
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
                .data([UInt8](repeating: 7, count: 99)),
            ]),
        PortFrame(
            number: 4, sender: PortSignature(kind: unix, address: try! SocketAddress(unixPath: "/a/b")),
            components: []),
    ]

    private func read(_ framer: inout PortFramer) throws(PortFrame.Fault) -> [PortFrame] {
        var frames: [PortFrame] = []
        while let frame = try framer.next() { frames.append(frame) }
        return frames
    }

    @Test(arguments: [1, 2, 7, 64, 1000])
    func `messages do not depend on how the bytes arrive`(size: Int) throws {
        let bytes = Self.frames.flatMap { $0.bytes ?? [] }
        var framer = PortFramer()
        var found: [PortFrame] = []
        for start in stride(from: 0, to: bytes.count, by: size) {
            framer.push(Array(bytes[start..<min(start + size, bytes.count)]))
            found += try read(&framer)
        }
        #expect(found == Self.frames)
    }

    @Test func `the bytes are those of the other systems`() {
        let frame = PortFrame(number: 0, sender: .none, components: [.data(Array("ab".utf8))])
        #expect(frame.bytes == PortBytes.message("ab"))
        let signature = PortSignature(kind: .tcp, address: .ipv4(0x7f00_0001, port: 258))
        #expect(signature.bytes == [2, 1, 6, 16, 16, 2, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    @Test func `a message that is changed anywhere is read or refused`() {
        let bytes = Self.frames[2].bytes ?? []
        for index in bytes.indices {
            for value in [0, 1, 0x7F, 0x80, 0xFF] as [UInt8] {
                var changed = bytes
                changed[index] = value
                var framer = PortFramer()
                framer.push(changed)
                _ = try? read(&framer)
            }
        }
    }

    @Test func `a message that is cut short anywhere, with a length that says so, is read or refused`() {
        let bytes = Self.frames[2].bytes ?? []
        for count in 16..<bytes.count {
            var cut = Array(bytes.prefix(count))
            cut[4...7] = UInt32(count).bigEndianBytes[...]
            var framer = PortFramer()
            framer.push(cut)
            _ = try? read(&framer)
        }
    }

    @Test func `a sender is seen at the address that it has really sent from`() {
        let anywhere = PortSignature(kind: .tcp, address: .ipv4Any(port: 7))
        #expect(anywhere.seen(from: .ipv4(5, port: 99)).address == .ipv4(5, port: 7))
        #expect(anywhere.seen(from: .ipv6Loopback(port: 99)).address == .ipv4Any(port: 7))
        let six = PortSignature(kind: .tcp, address: .ipv6Any(port: 7))
        #expect(six.seen(from: .ipv6(5, port: 99, scope: 2)).address == .ipv6(5, port: 7, scope: 2))
    }
}
