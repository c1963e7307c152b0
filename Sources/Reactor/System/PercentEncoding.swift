/// Writes bytes as one line of text: UTF-8 unchanged, except that control bytes and the percent sign are encoded.
func percentEncoded(_ bytes: ArraySlice<UInt8>) -> String {
    let isText = String(validating: bytes, as: UTF8.self) != nil
    var text: [UInt8] = []
    for byte in bytes {
        if byte < 0x20 || byte == 0x7f || byte == percent || (byte >= 0x80 && !isText) {
            text += [percent, digits[Int(byte >> 4)], digits[Int(byte & 15)]]
        } else {
            text.append(byte)
        }
    }
    return String(decoding: text, as: UTF8.self)
}

extension [UInt8] {
    /// Reads what `percentEncoded` writes; nil if a percent sign does not have two hexadecimal digits.
    init?(percentDecoding text: Substring) {
        self = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == percent else {
                append(byte)
                continue
            }
            guard let high = rest.popFirst()?.hexadecimalDigit, let low = rest.popFirst()?.hexadecimalDigit
            else {
                return nil
            }
            append(high << 4 | low)
        }
    }
}

extension UInt8 {
    fileprivate var hexadecimalDigit: UInt8? {
        Character(Unicode.Scalar(self)).hexDigitValue.map { UInt8($0) }
    }
}

extension String {
    /// The text after `prefix`; nil if this does not begin with it.
    func dropping(prefix: String) -> Substring? { hasPrefix(prefix) ? dropFirst(prefix.count) : nil }
}

private let percent = UInt8(ascii: "%")
private let digits = Array("0123456789ABCDEF".utf8)
