import Glibc
import Reactor
import SystemPackage
import Testing

/// A protocol that masks bytes: as little of TLS as its connection needs to know of.
///
/// A record has a type, a size of two bytes, and masked bytes. The client's hello begins the handshake, the
/// server's completes it.
enum Masking {
    enum Record: UInt8 {
        case hello = 1
        case data = 2
        case ticket = 3
        case end = 4
    }

    enum Failure: Error, Equatable {
        case truncated
        case unprotectedBytes
        case unknownRecord(UInt8)
    }

    static let mask: UInt8 = 0x5A

    static func record(_ type: Record, _ bytes: some Collection<UInt8> = []) -> [UInt8] {
        [type.rawValue, UInt8(bytes.count >> 8), UInt8(bytes.count & 255)] + bytes.map { $0 ^ mask }
    }

    /// The records of `bytes`.
    static func records(of bytes: [UInt8], size: Int = 1000) -> [UInt8] {
        stride(from: 0, to: bytes.count, by: size).flatMap {
            record(.data, bytes[$0..<min($0 + size, bytes.count)])
        }
    }

    /// The bytes in the records that are `bytes`; nil unless the announced end is the last.
    static func clearBytes(of bytes: [UInt8]) -> [UInt8]? {
        var (rest, clear) = (bytes[...], [UInt8]())
        while rest.count >= 3 {
            let (head, body) = (Array(rest.prefix(3)), rest.dropFirst(3))
            let size = Int(head[1]) << 8 + Int(head[2])
            rest = body.dropFirst(size)
            if head[0] == Record.end.rawValue { return rest.isEmpty ? clear : nil }
            clear += body.prefix(size).map { $0 ^ mask }
        }
        return nil
    }
}

struct MaskingSecurity: SocketSecurity {
    let isServer = false
    /// Called in the step of the handshake that has received the peer's hello.
    var decide: @Sendable () -> Void = {}

    func unprotectedBytes(from peer: String) -> any Error { Masking.Failure.unprotectedBytes }

    func makeSession(toHost host: String?, peer: String) throws -> any SecureSession {
        MaskingTransport(self)
    }
}

/// `@unchecked Sendable`: its connection makes one call at a time.
private final class MaskingTransport: SecureSession {
    private let security: MaskingSecurity
    private var received: [UInt8] = []
    private var clear: [UInt8] = []
    private var hasSentHello = false
    private var hasHello = false
    private var isAtEnd = false
    private var hasEnded = false
    private var failure: (any Error)?

    init(_ security: MaskingSecurity) { self.security = security }

    func take(_ received: [UInt8]) { self.received = received }

    func continueHandshake(over wire: SocketWire) throws -> Bool {
        if !hasSentHello { try send(.hello, [], over: wire) }
        hasSentHello = true
        while !hasHello { guard try fill(from: wire) else { return false } }
        security.decide()
        return true
    }

    private func send(_ type: Masking.Record, _ bytes: [UInt8], over wire: SocketWire) throws {
        let record = Masking.record(type, bytes)
        try wire.send(record.span.bytes)
    }

    /// Receives more bytes and takes the complete records out of them. False if there are none yet.
    private func fill(from wire: SocketWire) throws -> Bool {
        if let failure { throw failure }
        var memory = [UInt8](repeating: 0, count: 4096)
        let count: Int? = try {
            var span = memory.mutableSpan
            var bytes = span.mutableBytes
            return try wire.receive(into: &bytes)
        }()
        guard let count else { return false }
        do {
            if count == 0 { throw Masking.Failure.truncated }
            received += memory[..<count]
            while try takeRecord() {}
        } catch {
            failure = error
            if clear.isEmpty { throw error }
        }
        return true
    }

    private func takeRecord() throws -> Bool {
        guard received.count >= 3 else { return false }
        let end = 3 + Int(received[1]) << 8 + Int(received[2])
        guard received.count >= end else { return false }
        switch Masking.Record(rawValue: received[0]) {
        case .hello: hasHello = true
        case .data: clear += received[3..<end].map { $0 ^ Masking.mask }
        case .ticket: break
        case .end: isAtEnd = true
        case nil: throw Masking.Failure.unknownRecord(received[0])
        }
        received.removeFirst(end)
        return true
    }

    func receive(into buffer: inout MutableRawSpan, over wire: SocketWire) throws -> Int? {
        while clear.isEmpty {
            if isAtEnd { return 0 }
            guard try fill(from: wire) else { return nil }
        }
        let count = clear.withUnsafeBytes { buffer.copy($0.bytes) }
        clear.removeFirst(count)
        return count
    }

    func canReceive(over wire: SocketWire, receives: Bool) -> Bool {
        while clear.isEmpty, !isAtEnd, failure == nil {
            guard receives, (try? fill(from: wire)) ?? true else { return false }
        }
        return true
    }

    func send(_ bytes: RawSpan, over wire: SocketWire) throws {
        var copy: [UInt8] = []
        copy.append(bytes)
        try wire.send(Masking.records(of: copy).span.bytes)
    }

    func sendHeld(over wire: SocketWire) -> Bool { true }

    func end(over wire: SocketWire) {
        if !hasEnded { try? send(.end, [], over: wire) }
        hasEnded = true
    }

    func property(_ key: Stream.PropertyKey) -> (any Sendable)? { nil }
}

extension SocketFixture {
    /// A pair that is protected and open, with its peer after the handshake.
    static func protected(
        _ origin: SocketOrigin = .ipv4, isNarrow: Bool = false, bufferSize: Int? = nil
    ) throws -> SocketFixture {
        let fixture = try SocketFixture(origin, isNarrow: isNarrow)
        if let bufferSize { fixture.output.writeBufferSize = bufferSize }
        #expect(fixture.input.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.open() }
        try fixture.peer.answerHello()
        waitUntilOpen(fixture.streams)
        for stream in fixture.streams { try #require(stream.streamStatus == .open) }
        return fixture
    }
}

extension SocketPeer {
    /// The peer's side of the handshake, as a server.
    func answerHello() {
        _ = receive(3)
        send(Masking.record(.hello))
    }

    /// The next record, with its bytes in the clear; nil at the end.
    func receiveRecord() -> (type: Masking.Record, bytes: [UInt8])? {
        let head = receive(3)
        guard head.count == 3, let type = Masking.Record(rawValue: head[0]) else { return nil }
        return (type, receive(Int(head[1]) << 8 + Int(head[2])).map { $0 ^ Masking.mask })
    }

    /// The bytes of all records up to the end; nil unless it is announced.
    func receiveRecordsToEnd() -> [UInt8]? { receiveToEnd().flatMap(Masking.clearBytes) }
}
