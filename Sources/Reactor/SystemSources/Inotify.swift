import Glibc
import SystemPackage

/// An inotify(7) instance, and the changes that were read and not yet taken.
struct Inotify: ~Copyable {
    private let descriptor: OwnedDescriptor
    var changes: ArraySlice<FolderChange> = []
    /// Whether the last read has returned all that the kernel held.
    private(set) var isDrained = false

    var number: CInt { descriptor.number }

    /// Whether the kernel holds changes.
    var hasUnread: Bool { SystemCall.isReadable(number) }

    init() throws(IOError) {
        do throws(Errno) {
            let flags = CInt(IN_CLOEXEC | IN_NONBLOCK)
            descriptor = OwnedDescriptor(try SystemCall.make { inotify_init1(flags) })
        } catch .tooManyOpenFiles {
            // Either the process has no descriptor left, or the user no instance.
            let isFree = (try? OwnedDescriptor.require(1)) != nil
            throw IOError(
                .watch, isFree ? "files (limit: fs.inotify.max_user_instances)" : "files", .tooManyOpenFiles)
        } catch {
            throw IOError(.watch, "files", error)
        }
    }

    /// Replaces the changes by up to `size` bytes of what the kernel holds.
    mutating func readChanges(upTo size: Int) {
        let number = number
        var bytes: [UInt8] = []
        let count = bytes.append(upTo: size) { buffer in
            (try? SystemCall.read(number, into: &buffer)) ?? 0
        }
        // Less than the buffer holds is all that there was.
        isDrained = count <= size - FolderChange.sizeLimit
        changes = FolderChange.all(in: bytes)[...]
    }

    func watch(_ path: FilePath, follows: Bool) throws(Errno) -> CInt {
        let (number, flags) = (number, FolderChange.wanted | (follows ? 0 : UInt32(IN_DONT_FOLLOW)))
        return try SystemCall.make(path) { unsafe inotify_add_watch(number, $0, flags) }
    }

    func unwatch(_ folder: CInt) { inotify_rm_watch(number, folder) }
}
