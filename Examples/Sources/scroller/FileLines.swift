import Dispatch
import ExampleSupport
import Glibc
import Reactor
import SystemPackage

/// The lines of a file. A queue reads the file once and keeps the offset of every 64th line, an eighth of a
/// byte for each line. A row reads its line from the file.
final class FileLines: Rows {
    private static let stride = 64
    /// The rest of a longer line is not shown.
    private static let longestText = 1_000
    private static let blockSize = 16_384

    private let path: FilePath
    private let file: FileDescriptor
    /// How long a row takes in addition, in microseconds.
    private let delay: UInt32
    private let index = Mutex(Index())

    private struct Index {
        /// The number of lines that were found so far.
        var count = 0
        var offsets: [Int] = []
    }

    var count: Int { index.withLock { $0.count } }

    /// - Throws: `Errno.illegalSeek` if the file is not a regular one.
    init(path: FilePath, delay: UInt32) throws(Errno) {
        self.path = path
        self.delay = delay
        var status = stat()
        guard unsafe stat(path.string, &status) == 0 else { throw Errno(rawValue: errno) }
        guard status.st_mode & S_IFMT != S_IFDIR else { throw .isDirectory }
        guard status.st_mode & S_IFMT == S_IFREG else { throw .illegalSeek }
        let number = unsafe open(path.string, O_RDONLY | O_CLOEXEC)
        guard number >= 0 else { throw Errno(rawValue: errno) }
        file = FileDescriptor(rawValue: number)
    }

    deinit { try? file.close() }

    /// Begins to find the lines. Calls `progress` on the calling thread's loop when there are more.
    func findLines(progress: @escaping () -> Void) {
        // A longer line arrives in pieces, of which the first counts.
        let framer = LineFramer(overflow: .split)
        let reader = LineReader(
            InputStream(path: path), into: (), on: DispatchQueue(label: "lines"), framer: framer
        ) {
            [self] _, _, line in note(line)
        }
        reader.start(inModes: [.common], progress: { _ in progress() }, completion: { _ in progress() })
    }

    private func note(_ line: LineFramer.Line) {
        index.withLock { index in
            guard line.number > index.count else { return }
            if (line.number - 1).isMultiple(of: Self.stride) { index.offsets.append(line.offset) }
            index.count = line.number
        }
    }

    func text(at row: Int) -> String {
        usleep(delay)
        var offset = index.withLock { $0.offsets[row / Self.stride] }
        var linesToSkip = row % Self.stride
        var text: [UInt8] = []
        while case let block = read(at: offset), !block.isEmpty {
            for byte in block {
                if byte == UInt8(ascii: "\n") {
                    if linesToSkip == 0 { return Self.printable(text) }
                    linesToSkip -= 1
                } else if linesToSkip == 0 {
                    text.append(byte)
                    if text.count == Self.longestText { return Self.printable(text) }
                }
            }
            offset += block.count
        }
        return Self.printable(text)
    }

    /// Reads a block; an empty one at the end, and if that fails.
    private func read(at offset: Int) -> [UInt8] {
        unsafe [UInt8](unsafeUninitializedCapacity: Self.blockSize) { buffer, count in
            let bytes = UnsafeMutableRawBufferPointer(buffer)
            count = unsafe (try? file.read(fromAbsoluteOffset: Int64(offset), into: bytes)) ?? 0
        }
    }

    private static func printable(_ text: [UInt8]) -> String {
        let scalars = String(decoding: text, as: UTF8.self).unicodeScalars
        return String(String.UnicodeScalarView(scalars.map { $0.isPrintable ? $0 : " " }))
    }
}
