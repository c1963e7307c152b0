import ArgumentParser
import Reactor

/// A number of bytes on the command line, such as 4096, 64K or 1M.
struct ByteCount: ExpressibleByArgument, CustomStringConvertible {
    let value: Int

    init(_ value: Int) { self.value = value }

    init?(argument: String) {
        let units: [Character: Int] = ["K": 1 << 10, "M": 1 << 20, "G": 1 << 30]
        let unit = argument.last.flatMap { units[Character($0.uppercased())] }
        let digits = unit == nil ? argument[...] : argument.dropLast()
        guard let number = Int(digits), number > 0 else { return nil }
        let (value, overflows) = number.multipliedReportingOverflow(by: unit ?? 1)
        guard !overflows, value <= Self.maximum else { return nil }
        self.value = value
    }

    /// 1 GiB: larger buffers would defeat the purpose of reading in chunks.
    private static let maximum = 1 << 30

    var description: String {
        value % (1 << 20) == 0 ? "\(value >> 20)M" : value % (1 << 10) == 0 ? "\(value >> 10)K" : "\(value)"
    }

    var defaultValueDescription: String { description }
}

/// The treatment of lines that are longer than the limit.
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

/// The line terminator.
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
