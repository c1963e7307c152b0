#if DEBUG

import ReactorTestSupport
import ReactorTesting
import Testing

@testable import Reactor

/// The conversation with a proxy, as a value.
@Suite(.runLoop) struct ProxyNegotiationTests {

    private static let name = ProxyNegotiation.Target.name("example.org", port: 443)

    private static func proxy(_ kind: StreamProxy.Kind, user: String? = nil, password: String? = nil)
        -> StreamProxy
    {
        StreamProxy(kind, host: "proxy", port: 1080, user: user, password: password)
    }

    /// Sends replies in pieces; what the negotiation sends, and how it ends. A reply may be followed by the
    /// host's bytes, which must be left.
    private static func run(
        _ proxy: StreamProxy, to target: ProxyNegotiation.Target = name, replies: [[UInt8]], piece: Int = .max
    ) throws -> (sent: [[UInt8]], rest: [UInt8]) {
        var negotiation = try ProxyNegotiation(proxy, to: target)
        var (sent, rest) = ([negotiation.takeOutput()], replies.flatMap { $0 }[...])
        while !negotiation.isComplete {
            let count = min(piece, negotiation.missingCount)
            try negotiation.receive(rest.prefix(count))
            rest = rest.dropFirst(count)
            if !negotiation.output.isEmpty { sent.append(negotiation.takeOutput()) }
        }
        return (sent, Array(rest))
    }

    private static func reason(_ failure: ProxyFailure) -> IOError.Reason {
        .proxy(code: failure.cocoaCode, "\(failure)")
    }

    private static func failure(
        _ proxy: StreamProxy, _ replies: [[UInt8]], to target: ProxyNegotiation.Target = name
    ) -> IOError.Reason? {
        do {
            _ = try run(proxy, to: target, replies: replies)
            return nil
        } catch {
            guard let error = error as? IOError, case .proxy = error.reason else { return nil }
            #expect(error.subject.hasSuffix("through proxy:1080"))
            return error.reason
        }
    }

    @Test(arguments: [1, 3, .max])
    func `SOCKS 5 asks for a name, and leaves the host's bytes`(piece: Int) throws {
        let address: [[UInt8]] = [[1, 1, 2, 3, 4], [3, 2, 65, 66], [4] + [UInt8](repeating: 7, count: 16)]
        for bound in address {
            let (sent, rest) = try Self.run(
                Self.proxy(.socks5), replies: [[5, 0], [5, 0, 0] + bound + [0, 80], [9, 9]], piece: piece)
            #expect(sent == [[5, 1, 0], [5, 1, 0, 3, 11] + Array("example.org".utf8) + [1, 187]])
            #expect(rest == [9, 9])
        }
    }

    @Test func `SOCKS 5 sends addresses as such, and authenticates`() throws {
        let replies: [[UInt8]] = [[5, 2], [1, 0], [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]]
        let proxy = Self.proxy(.socks5, user: "me", password: "xyz")
        let (sent, _) = try Self.run(proxy, to: .name("10.1.2.3", port: 80), replies: replies)
        #expect(
            sent == [[5, 2, 0, 2], [1, 2, 109, 101, 3, 120, 121, 122], [5, 1, 0, 1, 10, 1, 2, 3, 0, 80]])
        let (other, _) = try Self.run(
            Self.proxy(.socks5), to: .address(.ipv6Loopback(port: 258)), replies: [[5, 0], replies[2]])
        #expect(other.last == [5, 1, 0, 4] + [UInt8](repeating: 0, count: 15) + [1, 1, 2])
    }

    @Test func `SOCKS 5 has one error for each reply`() {
        let reasons: [ProxyFailure] = [
            .generalFailure, .notAllowed, .networkUnreachable, .hostUnreachable, .connectionRefused,
            .timeToLiveExpired, .commandNotSupported, .addressNotSupported, .code(9),
        ]
        for (index, reason) in reasons.enumerated() {
            let reply: [UInt8] = [5, UInt8(index + 1), 0, 1, 0, 0, 0, 0, 0, 0]
            #expect(Self.failure(Self.proxy(.socks5), [[5, 0], reply]) == Self.reason(reason))
        }
        #expect(Self.failure(Self.proxy(.socks5), [[5, 0xFF]]) == Self.reason(.authenticationRequired))
        #expect(Self.failure(Self.proxy(.socks5), [[5, 2]]) == Self.reason(.notAProxy))
        #expect(Self.failure(Self.proxy(.socks5), [Array("HTTP/1.1 ".utf8)]) == Self.reason(.notAProxy))
        #expect(
            Self.failure(Self.proxy(.socks5, user: "a"), [[5, 2], [1, 1]])
                == Self.reason(.authenticationFailed))
        #expect(Self.failure(Self.proxy(.socks5), [[5, 0], [5, 0, 0]]) == Self.reason(.closed))
        let long = String(repeating: "a", count: 256)
        #expect(
            Self.failure(Self.proxy(.socks5), [[5, 0]], to: .name(long, port: 1))
                == Self.reason(.cannotBeEncoded))
        #expect(Self.failure(Self.proxy(.socks5, user: long), [[5, 2]]) == Self.reason(.cannotBeEncoded))
    }

    @Test func `SOCKS 4 asks for addresses, and 4a for names`() throws {
        let granted: [UInt8] = [0, 90, 0, 0, 0, 0, 0, 0]
        let proxy = Self.proxy(.socks4, user: "me")
        let (sent, rest) = try Self.run(
            proxy, to: .address(.ipv4(0x0A01_0203, port: 80)), replies: [granted, [1]])
        #expect(sent == [[4, 1, 0, 80, 10, 1, 2, 3, 109, 101, 0]] && rest == [1])
        let (named, _) = try Self.run(Self.proxy(.socks4), replies: [granted])
        #expect(named == [[4, 1, 1, 187, 0, 0, 0, 1, 0] + Array("example.org".utf8) + [0]])
        let codes: [(UInt8, ProxyFailure)] = [
            (91, .rejected), (92, .userUnknown), (93, .userUnknown), (0, .code(0)),
        ]
        for (code, reason) in codes {
            #expect(Self.failure(proxy, [[0, code, 0, 0, 0, 0, 0, 0]]) == Self.reason(reason))
        }
        #expect(
            Self.failure(proxy, [], to: .address(.ipv6Loopback(port: 1))) == Self.reason(.addressNotSupported)
        )
        #expect(Self.failure(Self.proxy(.socks4, user: "a\0b"), []) == Self.reason(.cannotBeEncoded))
    }

    @Test func `SOCKS 4a refuses empty host names, and users and host names of more than 255 bytes`() throws {
        let granted: [UInt8] = [0, 90, 0, 0, 0, 0, 0, 0]
        let (longest, long) = (String(repeating: "a", count: 255), String(repeating: "a", count: 256))
        let (sent, _) = try Self.run(
            Self.proxy(.socks4, user: longest), to: .name(longest, port: 1), replies: [granted])
        #expect(sent == [[4, 1, 0, 1, 0, 0, 0, 1] + Array("\(longest)\0\(longest)\0".utf8)])
        for (user, name) in [(long, "a"), ("a", long), ("a", ""), ("a", "b\0c")] {
            let failure = Self.failure(Self.proxy(.socks4, user: user), [], to: .name(name, port: 1))
            #expect(failure == Self.reason(.cannotBeEncoded))
        }
    }

    @Test(arguments: [1, 7, .max])
    func `CONNECT reads the head of the reply and nothing after it`(piece: Int) throws {
        let heads = [
            "HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 200\r\nVia: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: \r\n\n\r\r\nB: c\r\n\r\n",
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        ]
        for head in heads {
            let (sent, rest) = try Self.run(
                Self.proxy(.http), replies: [Array(head.utf8), [13, 10, 1]], piece: piece)
            #expect(
                String(decoding: sent[0], as: UTF8.self)
                    == "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n")
            #expect(sent.count == 1 && rest == [13, 10, 1])
        }
    }

    @Test func `CONNECT authenticates, and has an error for each status`() throws {
        let proxy = Self.proxy(.http, user: "Aladdin", password: "open sesame")
        let (sent, _) = try Self.run(
            proxy, to: .address(.ipv6Loopback(port: 1)), replies: [Array("HTTP/1.1 200\r\n\r\n".utf8)])
        let text = String(decoding: sent[0], as: UTF8.self)
        #expect(text.hasPrefix("CONNECT [::1]:1 HTTP/1.1\r\n"))
        #expect(text.hasSuffix("\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"))
        func reason(_ reply: String) -> IOError.Reason? {
            Self.failure(Self.proxy(.http), [Array(reply.utf8)])
        }
        #expect(reason("HTTP/1.1 407 Who?\r\n\r\n") == Self.reason(.authenticationRequired))
        #expect(
            Self.failure(proxy, [Array("HTTP/1.0 401 No\r\n\r\n".utf8)]) == Self.reason(.authenticationFailed)
        )
        #expect(reason("HTTP/1.1 403 Not today\r\n\r\n") == Self.reason(.status(403, "Not today")))
        #expect(reason("HTTP/1.1 503 \u{1B}[2J\n\u{9B}x\r\n\r\n") == Self.reason(.status(503, "?[2J??x")))
        let long = String(repeating: "x", count: 1000)
        #expect(reason("HTTP/1.1 503 \(long)\r\n\r\n") == Self.reason(.status(503, String(long.prefix(100)))))
        let interim = String(repeating: "HTTP/1.1 100 Continue\r\n\r\n", count: 1000)
        #expect(reason(interim + "HTTP/1.1 200\r\n\r\n") == Self.reason(.notAProxy))
        #expect(reason("SSH-2.0-OpenSSH_9.2\r\n") == Self.reason(.notAProxy))
        #expect(reason("HTTP/1.1 OK\r\n\r\n") == Self.reason(.notAProxy))
        #expect(reason("HTTP/1.1 200 OK\r\n") == Self.reason(.closed))
        #expect(reason("HTTP/1.1 200 " + String(repeating: "x", count: 20_000)) == Self.reason(.notAProxy))
        #expect(
            Self.failure(Self.proxy(.http), [], to: .name("a\r\nb", port: 1)) == Self.reason(.cannotBeEncoded)
        )
        #expect(Self.failure(Self.proxy(.http, user: "a:b"), []) == Self.reason(.cannotBeEncoded))
    }

    /// A fuzzer in miniature: whatever a proxy sends, in whatever pieces, the negotiation ends or asks for
    /// more.
    @Test func `whatever the replies, the negotiation asks for more or ends`() {
        var generator = SeededGenerator(seed: 14)
        let starts: [[UInt8]] = [
            [5, 0, 5, 0, 0], [5, 2, 1, 0, 5, 0, 0, 3], [0, 90], Array("HTTP/1.1 200 ".utf8),
        ]
        for round in 0..<Depth.of(full: 30_000, quick: 3000) {
            let kind = [StreamProxy.Kind.socks5, .socks4, .http][round % 3]
            guard var negotiation = try? ProxyNegotiation(Self.proxy(kind, user: "u"), to: Self.name) else {
                continue
            }
            var bytes =
                (starts.randomElement(using: &generator)!
                + (0..<40).map { _ in [0, 1, 3, 5, 10, 13, 90, 255].randomElement(using: &generator)! })[...]
            _ = negotiation.takeOutput()
            do {
                while !negotiation.isComplete, !bytes.isEmpty {
                    #expect(negotiation.missingCount > 0)
                    let count = Int.random(in: 1...max(1, negotiation.missingCount), using: &generator)
                    try negotiation.receive(bytes.prefix(count))
                    bytes = bytes.dropFirst(count)
                    _ = negotiation.takeOutput()
                }
            } catch { #expect(error.subject.hasPrefix("example.org:443 through")) }
        }
    }
}

#endif
