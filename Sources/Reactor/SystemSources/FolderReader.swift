import CReactorLinux
import Glibc
import SystemPackage

/// Reads the names in a watched folder, some at a time.
final class FolderReader {
    /// Why a folder is read.
    enum Cause {
        /// A path was given: what it contains is known.
        case given
        /// It has appeared: what it contains is reported.
        case appeared
        /// Like ``appeared``, found on a second look.
        case missing
        /// Changes were lost.
        case overflow

        var isReported: Bool { self == .appeared || self == .missing }
    }

    /// The folder's number.
    let number: CInt
    let cause: Cause
    /// The names that have changed meanwhile: the changes say what became of them.
    var changed: Set<FileName> = []
    /// How many folders it has found.
    var folderCount = 0
    private let descriptor: OwnedDescriptor
    private var entries: ArraySlice<(name: FileName, mayBeFolder: Bool)> = []

    init(_ path: FilePath, _ number: CInt, _ cause: Cause) throws(Errno) {
        descriptor = OwnedDescriptor(try SystemCall.open(path, O_RDONLY | O_DIRECTORY))
        (self.number, self.cause) = (number, cause)
    }

    /// The next name, and whether it may be a folder's: a file system need not say that. Nil at the end.
    func next() throws(Errno) -> (name: FileName, mayBeFolder: Bool)? {
        while entries.isEmpty {
            let records = try read()
            if records.isEmpty { return nil }
            parse(records)
        }
        return entries.popFirst()
    }

    /// Some records of getdents64(2); none at the end, or if the folder was removed.
    private func read() throws(Errno) -> ArraySlice<UInt8> {
        var records: [UInt8] = []
        _ = try records.append(upTo: 32_768) { (bytes) throws(Errno) in
            do throws(Errno) { return try SystemCall.readNames(descriptor.number, into: &bytes) } catch {
                guard error == .noSuchFileOrDirectory else { throw error }
                return 0
            }
        }
        return records[...]
    }

    /// Each record begins with 16 bytes that are not needed, its length in 2, and the type. The name is behind them.
    private func parse(_ records: ArraySlice<UInt8>) {
        var rest = records
        while let start = rest.indices.first {
            let (type, name) = (Int(rest[start + 18]), FileName(rest[(start + 19)...]))
            let mayBeFolder = type == DT_DIR || type == DT_UNKNOWN
            if let name, name.component.kind == .regular { entries.append((name, mayBeFolder)) }
            rest = rest.dropFirst(Int(rest[start + 16]) | Int(rest[start + 17]) << 8)
        }
    }
}
