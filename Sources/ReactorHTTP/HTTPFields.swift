/// The header fields of a request or a response, in order. Names are compared without regard to case.
///
/// ```swift
/// var fields: HTTPFields = ["Accept": "text/plain"]
/// fields["accept"]  // "text/plain"
/// ```
public struct HTTPFields: Sendable, Hashable, ExpressibleByDictionaryLiteral {
    /// A header field.
    public struct Field: Sendable, Hashable {
        /// The field's name, as it was given or received.
        public let name: String
        /// The field's value, without white space around it.
        public internal(set) var value: String
    }

    /// All fields, in order.
    public private(set) var fields: [Field] = []

    /// No fields.
    public init() {}

    /// The fields of a literal, in its order.
    public init(dictionaryLiteral elements: (String, String)...) {
        for (name, value) in elements { append(name, value) }
    }

    /// The value of the first field called `name`; nil if there is none. Setting it replaces all fields of that name.
    public subscript(name: String) -> String? {
        get { fields.first { Self.matches($0.name, name) }?.value }
        set {
            fields.removeAll { Self.matches($0.name, name) }
            if let newValue { append(name, newValue) }
        }
    }

    /// The values of all fields called `name`, in order.
    public func values(for name: String) -> [String] {
        fields.filter { Self.matches($0.name, name) }.map(\.value)
    }

    /// Adds a field behind the others.
    public mutating func append(_ name: String, _ value: String) {
        fields.append(Field(name: name, value: value))
    }

    /// Adds to the value of the last field, which a further line continues.
    mutating func continueLast(_ text: String) {
        guard let last = fields.indices.last, !text.isEmpty else { return }
        if !fields[last].value.isEmpty { fields[last].value.append(" ") }
        fields[last].value.append(text)
    }

    /// Why the fields cannot be sent; nil if they can.
    var fault: String? {
        for field in fields {
            if !Self.isToken(field.name) {
                return "the name of the header field '\(field.name)' is not a token"
            }
            if !Self.isValue(field.value) {
                return "the value of the header field '\(field.name)' has a control character"
            }
        }
        return nil
    }

    /// Whether a value has no control characters but tabs (RFC 9110, 5.5).
    static func isValue(_ text: String) -> Bool {
        text.utf8.allSatisfy { $0 >= 32 && $0 != 127 || $0 == 9 }
    }

    /// A method is a token, as a field's name is.
    static func isToken(_ text: String) -> Bool { !text.isEmpty && text.utf8.allSatisfy(isTokenByte) }

    private static func isTokenByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }

    static func matches(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count
            && zip(left.utf8, right.utf8).allSatisfy { lowercased($0) == lowercased($1) }
    }

    private static func lowercased(_ byte: UInt8) -> UInt8 {
        (0x41...0x5A).contains(byte) ? byte | 0x20 : byte
    }
}
