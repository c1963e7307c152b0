import ArgumentParser
import Reactor

/// A number of bytes, such as 4096, 64K or 1M.
struct ByteCount: ExpressibleByArgument, CustomStringConvertible {
    let value: Int

    init(_ value: Int) { self.value = value }

    init?(argument: String) {
        let units: [Character: Int] = ["K": 1 << 10, "M": 1 << 20, "G": 1 << 30]
        let unit = argument.last.flatMap { units[Character($0.uppercased())] }
        let digits = unit == nil ? argument[...] : argument.dropLast()
        guard let number = Int(digits), number > 0 else { return nil }
        let (value, isTooMuch) = number.multipliedReportingOverflow(by: unit ?? 1)
        guard !isTooMuch, value <= Self.greatest else { return nil }
        self.value = value
    }

    /// More than this in one piece is not what reading in pieces is about.
    private static let greatest = 1 << 30

    var description: String {
        value % (1 << 20) == 0 ? "\(value >> 20)M" : value % (1 << 10) == 0 ? "\(value >> 10)K" : "\(value)"
    }

    var defaultValueDescription: String { description }
}

/// What becomes of a line that is too long.
enum LongLines: String, CaseIterable, ExpressibleByArgument {
    case fail
    case truncate
    case split

    var value: LineFramer.Overflow {
        switch self {
        case .fail: .fail
        case .truncate: .truncate
        case .split: .split
        }
    }
}

/// What ends a line.
enum Terminator: String, CaseIterable, ExpressibleByArgument {
    case lf
    case crlf
    case newline
    case nul

    var value: LineTerminator {
        switch self {
        case .lf: .lineFeed
        case .crlf: .carriageReturnLineFeed
        case .newline: .newline
        case .nul: .bytes([0])
        }
    }
}
