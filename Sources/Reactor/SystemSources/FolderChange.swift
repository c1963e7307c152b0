import Glibc
import SystemPackage

/// A change as the kernel announces it (inotify(7)).
struct FolderChange {
    let folder: CInt
    let mask: UInt32
    let cookie: UInt32
    /// Of the file in the folder; nil for a change of the folder itself.
    let name: FileName?

    static let wanted = [
        IN_CREATE, IN_DELETE, IN_MODIFY, IN_CLOSE_WRITE, IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO,
        IN_DELETE_SELF, IN_MOVE_SELF, IN_ONLYDIR, IN_EXCL_UNLINK,
    ].reduce(0 as UInt32) { $0 | UInt32($1) }

    /// The limit of the bytes of one change.
    static let sizeLimit = 16 + Int(NAME_MAX) + 1

    /// Whether it changes which names are in the folder.
    var isOfNames: Bool { has(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO) }

    func has(_ flags: CInt) -> Bool { mask & UInt32(flags) != 0 }

    /// Its meaning for the file at `path`, for a change that needs nothing else.
    func event(at path: FilePath) -> FileWatcher.Event? {
        if has(IN_DELETE) { return .removed(path) }
        if has(IN_MODIFY) { return .modified(path) }
        if has(IN_CLOSE_WRITE) { return .closedAfterWriting(path) }
        return has(IN_ATTRIB) ? .attributesChanged(path) : nil
    }

    var isOfFolder: Bool { has(IN_ISDIR) }

    /// The changes that one read(2) has returned: numbers of 32 bits, the last of them the length of the
    /// name, which is padded with zeros.
    static func all(in bytes: [UInt8]) -> [FolderChange] {
        var changes: [FolderChange] = []
        var offset = 0
        func number(_ index: Int) -> UInt32 {
            bytes[(offset + 4 * index)...].prefix(4).reversed().reduce(0) { $0 << 8 | UInt32($1) }
        }
        while offset + 16 <= bytes.count {
            let length = Int(number(3))
            changes.append(
                FolderChange(
                    folder: CInt(bitPattern: number(0)), mask: number(1), cookie: number(2),
                    name: FileName(bytes[(offset + 16)...].prefix(length))))
            offset += 16 + length
        }
        return changes
    }
}

extension FilePath {
    /// The folder that it is in.
    var folder: FilePath {
        let folder = removingLastComponent()
        return folder.isEmpty ? "." : folder
    }

    /// The path of `name` in this folder.
    func entry(_ name: FilePath.Component) -> FilePath {
        self == "." ? FilePath(root: nil, [name]) : appending(name)
    }

    /// Whether a folder is there, perhaps behind a symbolic link.
    func isFolder() throws(Errno) -> Bool {
        do throws(Errno) {
            return try stat().type == .directory
        } catch .noSuchFileOrDirectory {
            return false
        }
    }

    /// Whether anything is there.
    var isTaken: Bool { (try? stat(followTargetSymlink: false)) != nil }
}
