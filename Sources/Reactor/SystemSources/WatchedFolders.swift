import Glibc
import SystemPackage

/// The folders that one inotify(7) instance watches, and the events that its changes mean.
struct WatchedFolders: ~Copyable {
    /// A path that was given.
    struct Root {
        let isFolder: Bool
        let isRecursive: Bool
    }

    struct Folder {
        var path: FilePath
        /// The paths that were given for the folder itself.
        var roots: Set<FilePath> = []
        /// Whether it is watched as part of a tree: the folders in it are, too.
        var isInTree = false
        /// The names of the files that are watched by path, each with the paths that were given.
        var files: [FilePath.Component: Set<FilePath>] = [:]
        /// What was found when it was read, while the kernel may still announce it.
        var found: Set<FilePath.Component> = []

        var isNeeded: Bool { isReported || !files.isEmpty }

        /// Whether all that is in it is reported.
        private var isReported: Bool { !roots.isEmpty || isInTree }

        func reports(_ name: FilePath.Component) -> Bool { isReported || files[name] != nil }
    }

    /// The first half of a move.
    struct Move {
        let path: FilePath
        let isFolder: Bool
        let date: Deadline
    }

    let inotify: OwnedDescriptor
    private var roots: [FilePath: Root] = [:]
    /// By the kernel's numbers, which it does not use again.
    private var folders: [CInt: Folder] = [:]
    private var numbers: [FilePath: CInt] = [:]
    /// By the kernel's cookies.
    private var moves: [UInt32: Move] = [:]
    private var events: [FileWatcher.Event] = []
    /// The folders of which ``Folder/found`` counts.
    private var recentlyRead: [CInt] = []

    var paths: [FilePath] { Array(roots.keys) }

    var counts: (paths: Int, folders: Int) { (roots.count, folders.count) }

    var awaitsMove: Bool { !moves.isEmpty }

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
        let (isFolder, before) = (path.isFolder, roots[path])
        let root = Root(isFolder: isFolder, isRecursive: recursively && isFolder)
        roots[path] = root
        do throws(IOError) {
            try begin(path, root)
        } catch {
            roots[path] = nil
            if let before { end(path, before) }
            end(path, root)
            throw error
        }
        if let before, before.isFolder != isFolder { return end(path, before) }
        if before?.isRecursive == true, !root.isRecursive { leaveTree(path) }
    }

    mutating func unwatch(_ path: FilePath) {
        if let root = roots.removeValue(forKey: path) { end(path, root) }
    }

    private mutating func begin(_ path: FilePath, _ root: Root) throws(IOError) {
        guard root.isFolder else {
            guard let name = path.lastComponent else {
                throw IOError(.watch, "\(path)", .noSuchFileOrDirectory)
            }
            try change(path.folder) { $0.files[name, default: []].insert(path) }
            return
        }
        try change(path) { $0.roots.insert(path) }
        if root.isRecursive { try join(path, isReported: false) }
    }

    private mutating func end(_ path: FilePath, _ root: Root) {
        if !root.isFolder, let name = path.lastComponent {
            return leave(numbers[path.folder]) { folder in
                folder.files[name]?.remove(path)
                if folder.files[name]?.isEmpty == true { folder.files[name] = nil }
            }
        }
        leave(numbers[path]) { $0.roots.remove(path) }
        if root.isRecursive { leaveTree(path) }
    }

    /// Watches the folder at `path`, unless it is, after a change of what it is watched for.
    @discardableResult
    private mutating func change(_ path: FilePath, _ change: (inout Folder) -> Void) throws(IOError) -> CInt {
        let inotify = inotify.number
        do throws(Errno) {
            let number = try SystemCall.make(path) {
                unsafe inotify_add_watch(inotify, $0, FolderChange.wanted)
            }
            // Known under another path if that leads to the same folder.
            var folder = folders[number] ?? Folder(path: path)
            change(&folder)
            folders[number] = folder
            numbers[path] = number
            return number
        } catch {
            let limit = error == .noSpace ? " (limit: fs.inotify.max_user_watches)" : ""
            throw IOError(.watch, "\(path)\(limit)", error)
        }
    }

    private mutating func leave(_ number: CInt?, _ change: (inout Folder) -> Void) {
        guard let number, var folder = folders[number] else { return }
        change(&folder)
        folders[number] = folder
        guard !folder.isNeeded else { return }
        forget(number)
        inotify_rm_watch(inotify.number, number)
    }

    private mutating func forget(_ number: CInt) {
        guard let folder = folders.removeValue(forKey: number) else { return }
        if numbers[folder.path] == number { numbers[folder.path] = nil }
    }

    // MARK: Trees

    /// Watches the folder at `root` and those below as part of a tree.
    ///
    /// - Parameter isReported: Whether what they contain is reported, and every error becomes an event.
    private mutating func join(_ root: FilePath, isReported: Bool) throws(IOError) {
        var waiting = [root]
        while let path = waiting.popLast() {
            do throws(IOError) { waiting += try joinOne(path, isReported: isReported) } catch {
                // It has gone, or is not a folder any more, as a later event says.
                if error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory { continue }
                let isLimit = error.errno == .noSpace || error.errno == .noMemory
                guard isReported || !isLimit && path != root else { throw error }
                events.append(.errorOccurred(error))
                if isLimit { return }
            }
        }
    }

    /// Watches the folder at `path` as part of a tree, and returns the folders in it.
    private mutating func joinOne(_ path: FilePath, isReported: Bool) throws(IOError) -> [FilePath] {
        let number = try change(path) { $0.isInTree = true }
        // Read after it is watched, so that nothing is missed in between.
        let entries = try attempt(.watch, "\(path)") { () throws(Errno) in try path.entries() }
        if isReported {
            folders[number]?.found = Set(entries.map(\.name))
            recentlyRead.append(number)
            events += entries.map { .created(path.entry($0.name)) }
        }
        return entries.filter(\.isFolder).map { path.entry($0.name) }
    }

    /// Stops watching the folders at and below `path` that are in no other tree.
    private mutating func leaveTree(_ path: FilePath) {
        for (number, folder) in folders where folder.isInTree && folder.path.starts(with: path) {
            if roots.contains(where: { $0.value.isRecursive && folder.path.starts(with: $0.key) }) {
                continue
            }
            leave(number) { $0.isInTree = false }
        }
    }

    private mutating func rename(_ old: FilePath, to new: FilePath) {
        for (number, folder) in folders where folder.path.starts(with: old) {
            var path = folder.path
            _ = path.removePrefix(old)
            path = path.isEmpty ? new : new.pushing(path)
            numbers[folder.path] = nil
            folders[number]?.path = path
            numbers[path] = number
        }
    }

    /// Begins again, after changes were lost.
    private mutating func rescan() {
        let (before, known) = (folders, roots)
        (folders, numbers, moves) = ([:], [:], [:])
        for (path, root) in known {
            do throws(IOError) {
                if root.isFolder, !path.isFolder { throw IOError(.watch, "\(path)", .noSuchFileOrDirectory) }
                try watch(path, recursively: root.isRecursive)
            } catch {
                roots[path] = nil
                events.append(error.errno == .noSuchFileOrDirectory ? .vanished(path) : .errorOccurred(error))
            }
        }
        for number in before.keys where folders[number] == nil { inotify_rm_watch(inotify.number, number) }
    }

    // MARK: Changes

    /// Reads up to `size` bytes of changes, and makes events of them.
    mutating func read(upTo size: Int) {
        let number = inotify.number
        var bytes: [UInt8] = []
        let count = bytes.append(upTo: size) { buffer in
            (try? SystemCall.read(number, into: &buffer)) ?? 0
        }
        guard count > 0 else { return }
        for change in FolderChange.all(in: bytes) { take(change) }
        // Less than the buffer holds: what the kernel announces from now on was not there when a folder was
        // read.
        if count < size / 2 {
            for number in recentlyRead { folders[number]?.found = [] }
            recentlyRead = []
        }
    }

    /// Counts as removed what was moved away before `date`.
    mutating func expireMoves(before date: Deadline) {
        for (cookie, move) in moves where move.date <= date {
            moves[cookie] = nil
            remove(move)
        }
    }

    private mutating func remove(_ move: Move) {
        events.append(.removed(move.path))
        guard move.isFolder else { return }
        vanish(below: move.path)
        leaveTree(moved: move.path)
    }

    private mutating func leaveTree(moved path: FilePath) {
        for (number, folder) in folders where folder.path.starts(with: path) {
            leave(number) { $0.isInTree = false }
        }
    }

    private mutating func take(_ change: FolderChange) {
        if change.has(IN_Q_OVERFLOW) {
            events.append(.overflowed)
            return rescan()
        }
        guard let folder = folders[change.folder] else { return }
        if change.has(IN_IGNORED) { return forget(change.folder) }
        guard !change.has(IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT) else {
            return vanish(change.folder, folder)
        }
        guard let name = change.name else {
            if change.has(IN_ATTRIB) { events += folder.roots.map { .attributesChanged($0) } }
            return
        }
        if change.has(IN_MOVED_TO), let move = moves.removeValue(forKey: change.cookie) {
            return finish(move, as: name, in: folder, change)
        }
        guard folder.reports(name) else { return }
        let path = folder.path.entry(name)
        if change.has(IN_CREATE | IN_MOVED_TO) { return appear(path, name, change, folder) }
        if change.has(IN_MOVED_FROM | IN_DELETE) { folders[change.folder]?.found.remove(name) }
        if change.has(IN_MOVED_FROM) {
            moves[change.cookie] = Move(path: path, isFolder: change.isOfFolder, date: .now)
        } else if let event = change.event(at: path) {
            events.append(event)
        }
    }

    /// A file or folder has been made, or come from where it was not watched.
    private mutating func appear(
        _ path: FilePath, _ name: FilePath.Component, _ change: FolderChange, _ folder: Folder
    ) {
        // Reported already, when the folder was read.
        if folders[change.folder]?.found.remove(name) != nil { return }
        events.append(.created(path))
        if change.isOfFolder, folder.isInTree { try? join(path, isReported: true) }
    }

    private mutating func finish(
        _ move: Move, as name: FilePath.Component, in folder: Folder, _ change: FolderChange
    ) {
        guard folder.reports(name) else { return remove(move) }
        let path = folder.path.entry(name)
        events.append(.moved(from: move.path, to: path))
        guard change.isOfFolder else { return }
        vanish(below: move.path)
        if numbers[move.path] != nil, folder.isInTree {
            rename(move.path, to: path)
        } else {
            leaveTree(moved: move.path)
            if folder.isInTree { try? join(path, isReported: true) }
        }
    }

    /// A folder has been moved, and with it what was given below: the kernel tells that of the folder alone.
    private mutating func vanish(below path: FilePath) {
        for (number, folder) in folders where folder.path != path && folder.path.starts(with: path) {
            vanish(number, folder)
        }
    }

    /// A watched folder is not at its path any more. Those below others are reported there.
    private mutating func vanish(_ number: CInt, _ folder: Folder) {
        for path in Array(folder.files.values.joined()) + folder.roots {
            let isRecursive = roots.removeValue(forKey: path)?.isRecursive == true
            events.append(.vanished(path))
            if isRecursive { leaveTree(path) }
        }
        leave(number) { folder in (folder.roots, folder.files) = ([], [:]) }
    }
}

/// A change as the kernel announces it (inotify(7)).
struct FolderChange {
    let folder: CInt
    let mask: UInt32
    let cookie: UInt32
    /// Of the file in the folder; nil for a change of the folder itself.
    let name: FilePath.Component?

    static let wanted = [
        IN_CREATE, IN_DELETE, IN_MODIFY, IN_CLOSE_WRITE, IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO,
        IN_DELETE_SELF,
        IN_MOVE_SELF, IN_ONLYDIR, IN_EXCL_UNLINK,
    ].reduce(0 as UInt32) { $0 | UInt32($1) }

    /// The limit of the bytes of one change.
    static let sizeLimit = 16 + Int(NAME_MAX) + 1

    func has(_ flags: CInt) -> Bool { mask & UInt32(flags) != 0 }

    /// What it means for the file at `path`, for a change that needs nothing else.
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
            let name = bytes[(offset + 16)...].prefix(length).prefix { $0 != 0 }
            let component = unsafe FilePath.Component(
                platformString: name.map { CChar(bitPattern: $0) } + [0])
            changes.append(
                FolderChange(
                    folder: CInt(bitPattern: number(0)), mask: number(1), cookie: number(2),
                    name: component))
            offset += 16 + length
        }
        return changes
    }
}

extension FilePath {
    /// The folder that it is in.
    fileprivate var folder: FilePath {
        let folder = removingLastComponent()
        return folder.isEmpty ? "." : folder
    }

    /// The path of `name` in this folder.
    fileprivate func entry(_ name: FilePath.Component) -> FilePath {
        self == "." ? FilePath(root: nil, [name]) : appending(name)
    }

    /// Whether a folder is there, perhaps behind a symbolic link.
    fileprivate var isFolder: Bool { (try? stat().type) == .directory }

    /// What the folder contains: names, and whether they are folders' and not symbolic links'.
    fileprivate func entries() throws(Errno) -> [(name: FilePath.Component, isFolder: Bool)] {
        guard let folder = unsafe withPlatformString({ unsafe opendir($0) }) else {
            throw Errno(rawValue: errno)
        }
        defer { unsafe closedir(folder) }
        var entries: [(FilePath.Component, Bool)] = []
        while let entry = unsafe readdir(folder) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) {
                    unsafe FilePath.Component(platformString: $0)
                }
            }
            guard let name, name.kind == .regular else { continue }
            let type = unsafe Int(entry.pointee.d_type)
            let isUnknown = type == DT_UNKNOWN
            let link = isUnknown ? try? appending(name).stat(followTargetSymlink: false).type : nil
            entries.append((name, type == DT_DIR || link == .directory))
        }
        return entries
    }
}
