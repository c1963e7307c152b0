import Reactor

/// A message between socket ports in bytes: Apple's framing, and Foundation's on Linux. All numbers have their highest
/// byte first.
///
/// A magic number and the whole length, 4 bytes each; the message's number, 4 bytes; the sender's signature; then, for
/// each component, a kind and a length, 4 bytes each, and as many bytes.
struct PortFrame: Hashable, Sendable {
    /// What a message carries.
    enum Component: Hashable, Sendable {
        case data([UInt8])
        case port(PortSignature)
    }

    /// Why bytes are no message. Nothing after them can be made out any more.
    enum Fault: Error { case badMagic, badLength, badSignature, badComponent }

    /// No message is longer: beyond that a length is more likely to be garbage.
    static let mostBytes = 16 << 20
    static let headerLength = 12
    private static let magic: UInt32 = 0xD0CF_50C0
    private static let (dataKind, portKind) = (UInt32(1), UInt32(2))

    var number: UInt32
    var sender: PortSignature
    var components: [Component]

    init(number: UInt32, sender: PortSignature, components: [Component]) {
        self.number = number
        self.sender = sender
        self.components = components
    }

    // MARK: Writing

    /// The message in bytes; nil if it is too long, or a signature has no such form.
    var bytes: [UInt8]? {
        guard let signature = sender.bytes else { return nil }
        var body = number.bigEndianBytes + signature
        for component in components {
            switch component {
            case .data(let bytes): Self.append(Self.dataKind, bytes, to: &body)
            case .port(let signature):
                guard let bytes = signature.bytes else { return nil }
                Self.append(Self.portKind, bytes, to: &body)
            }
            guard body.count <= Self.mostBytes - 8 else { return nil }
        }
        return Self.magic.bigEndianBytes + UInt32(body.count + 8).bigEndianBytes + body
    }

    private static func append(_ kind: UInt32, _ bytes: [UInt8], to body: inout [UInt8]) {
        body += kind.bigEndianBytes
        body += UInt32(truncatingIfNeeded: bytes.count).bigEndianBytes
        body += bytes
    }

    // MARK: Reading

    /// How long the message is whose first 8 bytes these are.
    static func length(_ start: ArraySlice<UInt8>) throws(Fault) -> Int {
        guard UInt32(bigEndian: start.prefix(4)) == magic else { throw .badMagic }
        let length = UInt32(bigEndian: start.dropFirst(4).prefix(4))
        guard length >= headerLength + PortSignature.headerLength, length <= mostBytes else {
            throw .badLength
        }
        return Int(length)
    }

    /// Reads a message of exactly these bytes, whose beginning has been looked at.
    init(_ bytes: ArraySlice<UInt8>) throws(Fault) {
        var rest = bytes.dropFirst(8)
        number = UInt32(bigEndian: Self.take(4, from: &rest))
        guard rest.count >= PortSignature.headerLength else { throw .badSignature }
        let length = PortSignature.headerLength + Int(rest[rest.startIndex + 3])
        guard length <= rest.count, let sender = PortSignature(Self.take(length, from: &rest)) else {
            throw .badSignature
        }
        self.sender = sender
        components = []
        while !rest.isEmpty { components.append(try Self.takeComponent(from: &rest)) }
    }

    private static func takeComponent(from rest: inout ArraySlice<UInt8>) throws(Fault) -> Component {
        guard rest.count >= 8 else { throw .badComponent }
        let kind = UInt32(bigEndian: take(4, from: &rest))
        let length = UInt32(bigEndian: take(4, from: &rest))
        guard length <= rest.count else { throw .badComponent }
        let bytes = take(Int(length), from: &rest)
        if kind == dataKind { return .data(Array(bytes)) }
        guard kind == portKind, let signature = PortSignature(bytes) else { throw .badComponent }
        return .port(signature)
    }

    private static func take(_ count: Int, from rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
}

/// Cuts what comes in on a connection into messages. Pure: no descriptor, no loop.
struct PortFramer {
    private var bytes: [UInt8] = []
    /// Where in `bytes` the next message begins.
    private var start = 0

    /// Takes in what has come.
    mutating func push(_ more: [UInt8]) {
        bytes.removeFirst(start)
        start = 0
        bytes += more
    }

    /// The next message, as soon as it is whole.
    mutating func next() throws(PortFrame.Fault) -> PortFrame? {
        let rest = bytes[start...]
        guard rest.count >= 8 else { return nil }
        let length = try PortFrame.length(rest)
        guard rest.count >= length else { return nil }
        start += length
        return try PortFrame(rest.prefix(length))
    }
}
