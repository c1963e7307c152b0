import ExampleSupport

/// The names under which downloads are saved.
struct FileName {
    private var taken: Set<String> = []

    /// The name of a URL's file, with a number if another URL's file has that name, or another's partial file.
    mutating func next(for url: String) -> String {
        let name = Self.of(url)
        var candidate = name
        var number = 0
        while !taken.isDisjoint(with: Self.files(candidate)) {
            number += 1
            candidate = "\(name).\(number)"
        }
        taken.formUnion(Self.files(candidate))
        return candidate
    }

    /// The files that a download makes.
    private static func files(_ name: String) -> [String] {
        [name, name + ".part", name + ".part.validator"]
    }

    static func isURL(_ text: String) -> Bool {
        let text = text.lowercased()
        return text.hasPrefix("http://") || text.hasPrefix("https://")
    }

    /// The last component of a URL's path. It is one component of a path of the file system, whatever the URL is, and has
    /// no characters that control a terminal. A longer one than a file system permits is cut.
    static func of(_ url: String) -> String {
        let address = url.drop { $0 != ":" }.dropFirst("://".count)
        let path = address.drop { !"/?#".contains($0) }.prefix { !"?#".contains($0) }
        let component = path.split(separator: "/", omittingEmptySubsequences: false).last ?? ""
        let name = safe(decoded(component))
        return ["", ".", ".."].contains(name) ? "index.html" : cut(name)
    }

    /// A name has at most 255 bytes (NAME_MAX), with the longest end that is added to it.
    private static let longestName = 255 - ".99999.part.validator".utf8.count

    private static func cut(_ name: String) -> String {
        var (characters, byteCount) = (name[...], name.utf8.count)
        while byteCount > longestName, let last = characters.unicodeScalars.popLast() {
            byteCount -= UTF8.width(last)
        }
        return String(characters)
    }

    /// The text without percent-encoding; the same text if that is not UTF-8.
    private static func decoded(_ text: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(2)
            if byte == UInt8(ascii: "%"), digits.count == 2, let text = String(digits), !text.hasPrefix("+"),
                let value = UInt8(text, radix: 16)
            {
                bytes.append(value)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(validating: bytes, as: UTF8.self) ?? String(text)
    }

    private static func safe(_ text: String) -> String {
        var name = ""
        for scalar in text.unicodeScalars {
            if scalar.isPrintable, !"/\\".unicodeScalars.contains(scalar) {
                name.unicodeScalars.append(scalar)
            } else {
                name += encoded(scalar)
            }
        }
        return name
    }

    private static func encoded(_ scalar: Unicode.Scalar) -> String {
        UTF8.encode(scalar)!.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }
            .joined()
    }
}
