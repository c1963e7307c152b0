import Reactor

/// A message between socket ports, in the wire format of Apple's systems and of Foundation on Linux.
///
/// Integers are big-endian. A frame is a magic number, the frame's length and the message's number, 4 bytes
/// each; then the sender's signature; then, for each component, its kind and its length, 4 bytes each, and
/// its bytes.
struct PortFrame: Hashable, Sendable {
    /// A part of a message.
    enum Component: Hashable, Sendable {
        case data(ArraySlice<UInt8>)
        case port(PortSignature)
    }

    /// Why bytes are not a valid frame. The bytes that follow cannot be parsed either.
    enum ParseError: Error { case badMagic, badLength, badSignature, badComponent, tooManyComponents }

    /// The length limit of a frame: a greater length in a header is more likely garbage than a message.
    static let maximumLength = 16 << 20
    /// The limit of components: the objects for them take a loop about a millisecond to create and release.
    static let maximumComponentCount = 4096
    /// The length of the magic number and the frame's length, which come first.
    static let prefixLength = 8
    private static let headerLength = 12
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

    // MARK: Encoding

    /// The encoded frame; nil if it is too long, has too many components, or a signature cannot be encoded.
    var bytes: [UInt8]? {
        guard components.count <= Self.maximumComponentCount, let signature = sender.bytes else { return nil }
        var body = number.bigEndianBytes + signature
        for component in components {
            switch component {
            case .data(let bytes): Self.append(Self.dataKind, bytes, to: &body)
            case .port(let signature):
                guard let bytes = signature.bytes else { return nil }
                Self.append(Self.portKind, bytes, to: &body)
            }
            guard body.count <= Self.maximumLength - 8 else { return nil }
        }
        return Self.magic.bigEndianBytes + UInt32(body.count + 8).bigEndianBytes + body
    }

    private static func append(_ kind: UInt32, _ bytes: some Collection<UInt8>, to body: inout [UInt8]) {
        body += kind.bigEndianBytes
        body += UInt32(truncatingIfNeeded: bytes.count).bigEndianBytes
        body += bytes
    }

    // MARK: Decoding

    /// The length of the frame whose first 8 bytes are `start`.
    static func length(_ start: ArraySlice<UInt8>) throws(ParseError) -> Int {
        guard UInt32(bigEndian: start.prefix(4)) == magic else { throw .badMagic }
        let length = UInt32(bigEndian: start.dropFirst(4).prefix(4))
        guard length >= headerLength + PortSignature.headerLength, length <= maximumLength else {
            throw .badLength
        }
        return Int(length)
    }

    /// Decodes a whole frame, whose prefix `length(_:)` has accepted. The components share its storage.
    init(_ bytes: [UInt8]) throws(ParseError) {
        var rest = bytes.dropFirst(Self.prefixLength)
        number = UInt32(bigEndian: Self.take(4, from: &rest))
        guard rest.count >= PortSignature.headerLength else { throw .badSignature }
        let length = PortSignature.headerLength + Int(rest[rest.startIndex + 3])
        guard length <= rest.count, let sender = PortSignature(Self.take(length, from: &rest)) else {
            throw .badSignature
        }
        self.sender = sender
        components = []
        while !rest.isEmpty {
            guard components.count < Self.maximumComponentCount else { throw .tooManyComponents }
            components.append(try Self.takeComponent(from: &rest))
        }
    }

    private static func takeComponent(from rest: inout ArraySlice<UInt8>) throws(ParseError) -> Component {
        guard rest.count >= 8 else { throw .badComponent }
        let kind = UInt32(bigEndian: take(4, from: &rest))
        let length = UInt32(bigEndian: take(4, from: &rest))
        guard length <= rest.count else { throw .badComponent }
        let bytes = take(Int(length), from: &rest)
        if kind == dataKind { return .data(bytes) }
        guard kind == portKind, let signature = PortSignature(bytes) else { throw .badComponent }
        return .port(signature)
    }

    private static func take(_ count: Int, from rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
}

/// Collects the bytes of one frame.
///
/// It takes no more bytes than the frame's and those of the next prefix, so that little waits here before
/// there is room for the next frame.
struct PortFrameDecoder {
    private var bytes: [UInt8] = []
    /// The frame's length; nil until its prefix has been parsed.
    private(set) var length: Int?

    /// How many bytes of the frame have arrived.
    var byteCount: Int { bytes.count }

    /// How many bytes to append next, at most.
    var room: Int { (length ?? 0) + PortFrame.prefixLength - bytes.count }

    /// Appends bytes, up to ``room``. Returns the bytes of the frame if that completes it.
    mutating func append(_ more: [UInt8]) -> [UInt8]? {
        if let length { bytes.reserveCapacity(length + PortFrame.prefixLength) }
        bytes += more
        guard let length, bytes.count >= length else { return nil }
        var frame = bytes
        bytes = Array(frame[length...])
        self.length = nil
        frame.removeLast(bytes.count)
        return frame
    }

    /// Sets ``length`` if the prefix has arrived.
    mutating func parsePrefix() throws(PortFrame.ParseError) {
        guard length == nil, bytes.count >= PortFrame.prefixLength else { return }
        length = try PortFrame.length(bytes[...])
    }
}
