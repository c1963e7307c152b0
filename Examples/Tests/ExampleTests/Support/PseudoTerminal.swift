import ExampleTestSupport
import Glibc
import SystemPackage

/// A terminal for a program, whose output a test reads.
final class PseudoTerminal: Sendable {
    /// The program's end.
    let path: String
    private let descriptor: CInt

    // Swift's Glibc lacks posix_openpt(3) and ptsname(3): these are the requests that they make (ioctl_tty(2)).
    private static let unlock: UInt = 0x4004_5431  // TIOCSPTLCK
    private static let getNumber: UInt = 0x8004_5430  // TIOCGPTN

    init(columns: Int, rows: Int = 24) throws {
        descriptor = try SystemCall.make { open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) }
        var (isLocked, number) = (CInt(0), CUnsignedInt(0))
        let codes = [ioctl(descriptor, Self.unlock, &isLocked), ioctl(descriptor, Self.getNumber, &number)]
        precondition(codes == [0, 0], "cannot make a pseudo-terminal")
        path = "/dev/pts/\(number)"
        resize(columns: columns, rows: rows)
    }

    deinit { close(descriptor) }

    func resize(columns: Int, rows: Int = 24) {
        var size = winsize(ws_row: UInt16(rows), ws_col: UInt16(columns), ws_xpixel: 0, ws_ypixel: 0)
        _ = ioctl(descriptor, UInt(TIOCSWINSZ), &size)
    }

    /// Reads until the output has `text`, and returns the output up to its end; nil if the program ends first.
    func read(to text: String) -> String? {
        var bytes: [UInt8] = []
        while let byte = readByte() {
            bytes.append(byte)
            if bytes.suffix(text.utf8.count).elementsEqual(text.utf8) {
                return String(decoding: bytes, as: UTF8.self)
            }
        }
        return nil
    }

    /// Reads the rest of the output.
    func readToEnd() -> String {
        var bytes: [UInt8] = []
        while let byte = readByte() { bytes.append(byte) }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Nil after EIO: no process has the other end open any more.
    private func readByte() -> UInt8? {
        var byte: UInt8 = 0
        return Glibc.read(descriptor, &byte, 1) == 1 ? byte : nil
    }
}
