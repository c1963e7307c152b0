import Glibc
import SystemPackage

/// The folders that one inotify(7) instance watches, and the events that its changes mean.
///
/// The kernel's queue is behind the disk. So a folder that appears is looked up later than the kernel
/// announced it: another may be at its path by then, or it may be elsewhere. Until everything that was queued
/// by then has been read, the folder is unsettled, and its place is checked when its path changes; one that
/// was not found is missing, and looked for again.
struct WatchedFolders: ~Copyable {
    /// A path that was given.
    struct Root {
        let isFolder: Bool
        let isRecursive: Bool
        /// The folder that is watched for it.
        let folder: CInt
    }

    struct Folder {
        var path: FilePath
        /// The paths that were given for the folder itself.
        var roots: Set<FilePath> = []
        /// Whether it is watched as part of a tree: the folders in it are, too.
        var isInTree = false
        /// The names of the files that are watched by path, each with the paths that were given.
        var files: [FilePath.Component: Set<FilePath>] = [:]
        /// Whether the kernel may still hold changes from before it was watched.
        var isUnsettled = false
        /// The names that were reported when it was read, while the kernel may still announce that they were made.
        var found: Set<FilePath.Component> = []
        /// The names that were reported since it was read, while it is unsettled; nil if those that it contained were not.
        var reported: Set<FilePath.Component>?
        /// The cookie of the move from it whose second half has not come.
        var departure: UInt32?
        /// The move that has ended in it, until its names change again.
        var arrival: Arrival?

        var isNeeded: Bool { isReported || !files.isEmpty }

        /// Whether all that is in it is reported.
        private var isReported: Bool { !roots.isEmpty || isInTree }

        func reports(_ name: FilePath.Component) -> Bool { isReported || files[name] != nil }

        /// Stops watching the file `name` by a path that was given.
        mutating func remove(_ path: FilePath, of name: FilePath.Component) {
            files[name]?.remove(path)
            if files[name]?.isEmpty == true { files[name] = nil }
        }

        /// Whether `name` was reported, or was there before anything was.
        func hasReported(_ name: FilePath.Component) -> Bool {
            reports(name) && reported?.contains(name) != false
        }
    }

    /// A name in a watched folder.
    struct Place: Hashable {
        let folder: CInt
        let name: FilePath.Component
    }

    /// The first half of a move.
    struct Move {
        let place: Place
        let isFolder: Bool
        let isReported: Bool
        let date: Deadline
        /// The folder that is moved, if it is watched.
        let number: CInt?
        /// The move before, if that was to `place`.
        let arrival: Arrival?
        /// What happened in the folder that is moved before the second half came.
        var changes: [FolderChange] = []
    }

    /// A move that is complete: perhaps the first of the two by which the kernel announces an exchange.
    struct Arrival {
        let from: Place
        let name: FilePath.Component
        let isFolder: Bool
        /// The folders that were known where it began and where it ended.
        let (moved, replaced): (CInt?, CInt?)
    }

    /// Why folders are watched as part of a tree.
    enum Cause {
        /// A path was given: the first error is thrown.
        case given
        /// They have appeared: what they contain is reported, and errors are events.
        case appeared
        /// As ``appeared``, for one that was missing.
        case missing
        /// Changes were lost: errors are events.
        case overflow

        var isReported: Bool { self == .appeared || self == .missing }
    }

    let inotify: OwnedDescriptor
    var roots: [FilePath: Root] = [:]
    /// By the kernel's numbers, which it does not use again.
    var folders: [CInt: Folder] = [:]
    var numbers: [FilePath: CInt] = [:]
    /// By the kernel's cookies.
    var moves: [UInt32: Move] = [:]
    /// What was read and not yet taken.
    var changes: ArraySlice<FolderChange> = []
    /// Whether the last read has returned all that the kernel held.
    var isDrained = false
    /// Where the disk may differ from what the changes say, and whether they say that something is there.
    var doubted: [Place: Bool] = [:]
    var events: [FileWatcher.Event] = []
    /// The folders that became unsettled since the last read, and those that did before.
    var (unsettled, settling): ([CInt], [CInt]) = ([], [])
    /// Where a folder in a tree was announced, and not found.
    var missing: Set<Place> = []

    var paths: [FilePath] { Array(roots.keys) }

    var counts: (paths: Int, folders: Int) { (roots.count, folders.count) }

    /// Whether a move is to be reported once its second half has come, or is overdue.
    var awaitsMove: Bool { moves.contains { $0.value.isReported } }

    /// Whether the kernel holds changes.
    var hasUnread: Bool { (try? SystemCall.poll(inotify.number, for: POLLIN)) ?? 0 != 0 }

    var hasEvents: Bool { !events.isEmpty }

    init() throws(IOError) {
        do throws(Errno) {
            let flags = CInt(IN_CLOEXEC | IN_NONBLOCK)
            inotify = OwnedDescriptor(try SystemCall.make { inotify_init1(flags) })
        } catch .tooManyOpenFiles {
            // Either the process has no descriptor left, or the user no instance.
            let counter = try? OwnedDescriptor.eventCounter()
            let isFree = counter != nil
            throw IOError(
                .watch, isFree ? "files (limit: fs.inotify.max_user_instances)" : "files", .tooManyOpenFiles)
        } catch {
            throw IOError(.watch, "files", error)
        }
    }

    mutating func takeEvents() -> [FileWatcher.Event] {
        defer { events = [] }
        return events
    }

    // MARK: Paths

    /// Watches `path`, and no longer as it was watched before. What the kernel holds of it is not lost.
    mutating func watch(_ path: FilePath, recursively: Bool) throws(IOError) {
        endIfReplaced(path)
        let (isFolder, before) = (path.isFolder, roots[path])
        let isRecursive = recursively && isFolder
        do throws(IOError) {
            try begin(path, isFolder: isFolder, isRecursive: isRecursive, .given)
        } catch {
            unwatch(path)
            if let before { end(path, before) }
            throw error
        }
        if let before, before.isFolder != isFolder { return end(path, before) }
        if before?.isRecursive == true, !isRecursive { leaveTree(path) }
    }

    /// Stops watching `path` if another folder is there than the one that is watched for it.
    private mutating func endIfReplaced(_ path: FilePath) {
        guard let root = roots[path] else { return }
        if !isAt(root.isFolder ? path : path.folder, root.folder, follows: true) { unwatch(path) }
    }

    mutating func unwatch(_ path: FilePath) {
        if let root = roots.removeValue(forKey: path) { end(path, root) }
    }

    mutating func begin(
        _ path: FilePath, isFolder: Bool, isRecursive: Bool, _ cause: Cause
    ) throws(IOError) {
        guard isFolder else {
            guard let name = path.lastComponent else {
                throw IOError(.watch, "\(path)", .noSuchFileOrDirectory)
            }
            let number = try change(path.folder) { $0.files[name, default: []].insert(path) }
            roots[path] = Root(isFolder: false, isRecursive: false, folder: number)
            return
        }
        let number = try change(path) { $0.roots.insert(path) }
        roots[path] = Root(isFolder: true, isRecursive: isRecursive, folder: number)
        if isRecursive { try join(path, nil, cause) }
    }

    private mutating func end(_ path: FilePath, _ root: Root) {
        if !root.isFolder, let name = path.lastComponent {
            return leave(root.folder) { $0.remove(path, of: name) }
        }
        leave(root.folder) { $0.roots.remove(path) }
        if root.isRecursive { leaveTree(path) }
    }

    /// Watches the folder at `path`, unless it is, after a change of what it is watched for.
    mutating func change(
        _ path: FilePath, follows: Bool = true, _ change: (inout Folder) -> Void
    ) throws(IOError) -> CInt {
        do throws(Errno) {
            let number = try addWatch(path, follows: follows)
            // Known under another path if that leads to the same folder.
            var folder = folders[number] ?? Folder(path: path)
            change(&folder)
            folders[number] = folder
            if folder.path == path { numbers[path] = number }
            return number
        } catch {
            let limit = error == .noSpace ? " (limit: fs.inotify.max_user_watches)" : ""
            throw IOError(.watch, "\(path)\(limit)", error)
        }
    }

    private func addWatch(_ path: FilePath, follows: Bool) throws(Errno) -> CInt {
        let (inotify, flags) = (inotify.number, FolderChange.wanted | (follows ? 0 : UInt32(IN_DONT_FOLLOW)))
        return try SystemCall.make(path) { unsafe inotify_add_watch(inotify, $0, flags) }
    }

    /// Whether the folder `number` is at `path` now.
    func isAt(_ path: FilePath, _ number: CInt, follows: Bool = false) -> Bool {
        guard let found = try? addWatch(path, follows: follows) else { return false }
        if folders[found] == nil { inotify_rm_watch(inotify.number, found) }
        return found == number
    }

    mutating func leave(_ number: CInt?, _ change: (inout Folder) -> Void) {
        guard let number, var folder = folders[number] else { return }
        change(&folder)
        folders[number] = folder
        guard !folder.isNeeded else { return }
        forget(number)
        inotify_rm_watch(inotify.number, number)
    }

    mutating func forget(_ number: CInt) {
        guard let folder = folders.removeValue(forKey: number) else { return }
        if numbers[folder.path] == number { numbers[folder.path] = nil }
    }

    /// The number of the watched folder at `path`.
    func known(at path: FilePath) -> CInt? {
        numbers[path].flatMap { folders[$0] == nil ? nil : $0 }
    }

    /// Where the folder at `path` is in another watched one.
    func place(of path: FilePath) -> Place? {
        guard let folder = numbers[path.folder], let name = path.lastComponent else { return nil }
        return Place(folder: folder, name: name)
    }

    /// The path of what is at `place`; nil if the folder is not watched any more.
    func path(of place: Place) -> FilePath? { folders[place.folder]?.path.entry(place.name) }
}
