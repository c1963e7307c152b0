import Glibc
import SystemPackage

/// The folders that one inotify(7) instance watches, and the events that its changes mean.
///
/// The folders of a tree are linked by names, so a subtree is moved or left by changing one link. A link counts if both ends
/// have it. Folders whose link was cut are silent, and are ended a few at a time.
///
/// The kernel's queue is behind the disk: when a folder's appearance is read, another may be at its path, or it may be
/// elsewhere. Until everything that was queued by then has been read, the folder is unsettled: its place is checked when its
/// path changes. A folder that was not found is missing, and looked for again.
struct WatchedFolders: ~Copyable {
    /// A path that was given.
    struct Root {
        let location: Location
        /// Of a file; nil for a folder.
        let name: FileName?
        let isRecursive: Bool
        /// The folder that is watched for it.
        let folder: CInt

        /// Where that folder is.
        var home: Location { name == nil ? location : location.folder }
    }

    final class Folder {
        /// Where it was found by a path that was given; nil if it is known by its entry only.
        var location: Location?
        /// Where it is in a tree.
        var entry: FolderEntry?
        /// The folders in it that are watched as part of a tree.
        var children: [FileName: CInt] = [:]
        /// The paths that were given for files in it, by their names, and for itself, by nil.
        var given: [FileName?: Set<FilePath>] = [:]
        /// Whether it is watched as part of a tree: the folders in it are, too.
        var isInTree = false
        /// Whether the kernel may still hold changes from before it was watched.
        var isUnsettled = false
        var isBeingRead = false
        /// While it is unsettled, the names that were reported since it was read, and whether the kernel may still announce
        /// that they were created; nil if its contents were not reported.
        var reported: [FileName: Bool]?
        /// The cookie of the move of it whose second half has not come.
        var move: UInt32?
        /// The name that was moved to it last and from where, until its names change again.
        var arrival: (name: FileName, from: FolderEntry?)?

        var isNeeded: Bool { isInTree || !given.isEmpty }

        func reports(_ name: FileName) -> Bool { isInTree || given[nil] != nil || given[name] != nil }

        /// Whether `name` was reported, or was there before anything was.
        func hasReported(_ name: FileName) -> Bool {
            reports(name) && reported.map { $0[name] != nil } ?? true
        }
    }

    /// A name in a watched folder.
    struct FolderEntry: Hashable {
        let folder: CInt
        let name: FileName
    }

    /// The first half of a move.
    struct Move {
        let entry: FolderEntry
        /// Where it was on the disk.
        let path: FilePath
        let isFolder: Bool
        let isReported: Bool
        let date: Deadline
        /// The folder that is moved, if it is watched.
        let number: CInt?
        /// The arrival of its name, if no name has changed since: the two moves may be an exchange (renameat2(2)).
        let arrival: (name: FileName, from: FolderEntry?)?
        /// What happened in the folder that is moved before the second half came.
        var changes: [FolderChange] = []
    }

    /// How long one pass handles changes and reads folders: short for other timers, long compared with a pass.
    static let timeSlice = Duration.milliseconds(5)

    /// The roots, by the paths that were given.
    struct Roots {
        private var all: [FilePath: Root] = [:]
        /// The paths that were given, by those of the folders above theirs.
        private var below: [FilePath: Set<FilePath>] = [:]

        var count: Int { all.count }
        var paths: [FilePath] { Array(all.keys) }

        subscript(path: FilePath) -> Root? { all[path] }

        func below(_ path: FilePath) -> [Root] { below[path, default: []].compactMap { all[$0] } }

        mutating func insert(_ root: Root) {
            let path = root.location.given
            all[path] = root
            for above in root.home.absolute.foldersAbove { below[above, default: []].insert(path) }
        }

        mutating func remove(_ path: FilePath) -> Root? {
            guard let root = all.removeValue(forKey: path) else { return nil }
            for above in root.home.absolute.foldersAbove { below.remove(path, from: above) }
            return root
        }
    }

    var inotify: Inotify
    var roots = Roots()
    /// By the kernel's numbers, which it does not use again.
    var folders: [CInt: Folder] = [:]
    /// By the kernel's cookies.
    var moves: [UInt32: Move] = [:]
    var events: [FileWatcher.Event] = []
    /// The folders that became unsettled since the last read, and those that did before.
    var (unsettled, settling): ([CInt], [CInt]) = ([], [])
    /// Where a folder in a tree was announced, and not found.
    var missing: Set<FolderEntry> = []
    /// The folders that are being read, and where others are to be read.
    var readers: [FolderReader] = []
    var unread: [(entry: FolderEntry, cause: FolderReader.Cause)] = []
    /// The folders to end unless they have been found again, those to end once all is read, and the roots to begin again.
    var (cut, stale, lost): ([CInt], [CInt], [FilePath]) = ([], [], [])
    /// Whether changes may be missed until all is read.
    var isIncomplete = false
    /// Why the path that is being given cannot be watched.
    var refusal: IOError?

    var counts: (paths: Int, folders: Int) { (roots.count, folders.count) }

    init() throws(IOError) { inotify = try Inotify() }

    mutating func takeEvents() -> [FileWatcher.Event] {
        defer { events = [] }
        return events
    }

    // MARK: Paths that are given

    /// Replaces the watch of `path`. Queued changes are kept.
    mutating func watch(_ path: FilePath, recursively: Bool) throws(IOError) {
        let (location, isFolder): (Location, Bool)
        do throws(Errno) {
            location = Location(given: path, absolute: try path.absolute())
            isFolder = try location.absolute.isFolder()
        } catch {
            unwatch(path)
            throw IOError(.watch, "\(path)", error)
        }
        let before = roots[path]
        if let before,
            (before.name == nil) != isFolder || !isAt(before.home.absolute, before.folder, follows: true)
        {
            unwatch(path)
        }
        do throws(IOError) {
            try begin(location, isFolder: isFolder, isRecursive: recursively && isFolder, .given)
            work(until: .now + Self.timeSlice)
            if let error = refusal.take() { throw error }
        } catch {
            unwatch(path)
            throw error
        }
        if before?.isRecursive == true, let root = roots[path], !root.isRecursive { leaveTree(root.folder) }
        let causes = readers.map(\.cause) + unread.map(\.cause)
        if recursively, causes.contains(.given) { isIncomplete = true }
    }

    mutating func unwatch(_ path: FilePath) {
        endRoot(path)
        work(until: .now + Self.timeSlice)
    }

    mutating func begin(
        _ location: Location, isFolder: Bool, isRecursive: Bool, _ cause: FolderReader.Cause
    ) throws(IOError) {
        let home = isFolder ? location : location.folder
        do throws(Errno) {
            guard isFolder || location.given.lastComponent != nil else { throw .noSuchFileOrDirectory }
            let number = try inotify.watch(home.absolute, follows: true)
            let folder = folders[number] ?? Folder()
            // Known under another path if that leads to the same folder.
            if folders.updateValue(folder, forKey: number) == nil { folder.location = home }
            let name = isFolder ? nil : location.absolute.lastComponent.map { FileName($0) }
            folder.given[name, default: []].insert(location.given)
            roots.insert(Root(location: location, name: name, isRecursive: isRecursive, folder: number))
            guard isRecursive else { return }
            folder.isInTree = true
            try read(number, home.absolute, cause)
        } catch {
            throw IOError(.watch, "\(home.given)\(error.watchLimit)", error)
        }
    }

    mutating func endRoot(_ path: FilePath) {
        guard let root = roots.remove(path) else { return }
        folders[root.folder]?.given.remove(path, from: root.name)
        leaveTree(root.folder)
    }

    /// Ends the roots below a folder that was moved: the kernel reports only the folder.
    mutating func vanish(below path: FilePath) {
        for number in Set(roots.below(path).map(\.folder)) { endRoots(of: number) }
    }

    /// Stops watching the paths that were given for a folder and for files in it, except those that still lead to it: they were
    /// given after it was moved.
    mutating func endRoots(of number: CInt) {
        guard let folder = folders[number] else { return }
        let given = folder.given.values.joined().compactMap { roots[$0] }
        let left = given.filter { !isAt($0.home.absolute, number, follows: true) }
        if let location = folder.location, !isAt(location.absolute, number, follows: true) {
            let paths = Set(left.map(\.location.given))
            folder.location = given.first { !paths.contains($0.location.given) }?.home
        }
        for root in left {
            events.append(.vanished(root.location.given))
            endRoot(root.location.given)
        }
    }

    // MARK: The kernel's watches

    /// Whether the folder `number` is at `path` now.
    func isAt(_ path: FilePath, _ number: CInt, follows: Bool = false) -> Bool {
        guard let found = try? inotify.watch(path, follows: follows) else { return false }
        if folders[found] == nil { inotify.unwatch(found) }
        return found == number
    }

    mutating func endIfUnneeded(_ number: CInt) {
        guard folders[number]?.isNeeded == false else { return }
        forget(number)
        inotify.unwatch(number)
    }

    mutating func forget(_ number: CInt) {
        unlink(number)
        if let folder = folders.removeValue(forKey: number) { cut += folder.children.values }
    }
}

/// A path as it was given and is reported, and where it led then: a process may change its current directory.
struct Location {
    let given: FilePath
    let absolute: FilePath

    /// Where the folder that it is in is.
    var folder: Location { Location(given: given.folder, absolute: absolute.folder) }
}

/// A name in a folder.
struct FileName: Hashable {
    let component: FilePath.Component
    /// A large dictionary grows several times faster if no name is hashed again.
    private let hash: Int

    init(_ component: FilePath.Component) {
        self.component = component
        hash = component.hashValue
    }

    /// The bytes before the first zero; nil if there are none, or there is no zero.
    init?(_ bytes: ArraySlice<UInt8>) {
        guard bytes.contains(0) else { return nil }
        let component = unsafe bytes.withUnsafeBytes {
            unsafe FilePath.Component(platformString: $0.baseAddress!.assumingMemoryBound(to: CChar.self))
        }
        guard let component else { return nil }
        self.init(component)
    }

    func hash(into hasher: inout Hasher) { hasher.combine(hash) }
}

extension FilePath {
    /// The folders above, but for the current one.
    fileprivate var foldersAbove: [FilePath] {
        var (path, above): (FilePath, [FilePath]) = (self, [])
        while path.removeLastComponent() { above.append(path) }
        return above
    }
}

extension Dictionary where Value == Set<FilePath> {
    /// Removes `path` from the set of `key`, and an empty set.
    fileprivate mutating func remove(_ path: FilePath, from key: Key) {
        self[key]?.remove(path)
        if self[key]?.isEmpty == true { self[key] = nil }
    }
}

extension Errno {
    /// What the text of an error says about the limit that was reached.
    var watchLimit: String { self == .noSpace ? " (limit: fs.inotify.max_user_watches)" : "" }
}
