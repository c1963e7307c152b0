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
        /// The cookie of the move from it whose second half has not come.
        var departure: UInt32?
        /// The move that has ended in it, until its names change again.
        var arrival: Arrival?

        var isNeeded: Bool { isReported || !files.isEmpty }

        /// Whether all that is in it is reported.
        private var isReported: Bool { !roots.isEmpty || isInTree }

        func reports(_ name: FilePath.Component) -> Bool { isReported || files[name] != nil }
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

    /// What a move back to where the last one began is.
    private enum Return {
        /// The second half of an exchange.
        case exchange
        case wayBack
        /// The changes that were read do not say.
        case unknown(mayAskDisk: Bool)
    }

    /// Why folders are watched as part of a tree.
    private enum Cause {
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

    /// How many changes are read ahead to learn what a move back was: four reads of short names.
    private static let lookAheadLimit = 8_192

    let inotify: OwnedDescriptor
    private var roots: [FilePath: Root] = [:]
    /// By the kernel's numbers, which it does not use again.
    private var folders: [CInt: Folder] = [:]
    private var numbers: [FilePath: CInt] = [:]
    /// By the kernel's cookies.
    private var moves: [UInt32: Move] = [:]
    /// What was read and not yet taken.
    private var changes: ArraySlice<FolderChange> = []
    /// Whether the last read has returned all that the kernel held.
    private var isDrained = false
    /// What remains there if what was taken for an exchange was one.
    private var doubted: Set<Place> = []
    private var events: [FileWatcher.Event] = []
    /// The folders that became unsettled since the last read, and those that did before.
    private var (unsettled, settling): ([CInt], [CInt]) = ([], [])
    /// Where a folder in a tree was announced, and not found.
    private var missing: Set<Place> = []

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

    private mutating func begin(
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
            return leave(root.folder) { folder in
                folder.files[name]?.remove(path)
                if folder.files[name]?.isEmpty == true { folder.files[name] = nil }
            }
        }
        leave(root.folder) { $0.roots.remove(path) }
        if root.isRecursive { leaveTree(path) }
    }

    /// Watches the folder at `path`, unless it is, after a change of what it is watched for.
    private mutating func change(
        _ path: FilePath, follows: Bool = true, _ change: (inout Folder) -> Void
    ) throws(IOError) -> CInt {
        do throws(Errno) {
            let number = try addWatch(path, follows: follows)
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

    private func addWatch(_ path: FilePath, follows: Bool) throws(Errno) -> CInt {
        let (inotify, flags) = (inotify.number, FolderChange.wanted | (follows ? 0 : UInt32(IN_DONT_FOLLOW)))
        return try SystemCall.make(path) { unsafe inotify_add_watch(inotify, $0, flags) }
    }

    /// Whether the folder `number` is at `path` now.
    private func isAt(_ path: FilePath, _ number: CInt, follows: Bool = false) -> Bool {
        guard let found = try? addWatch(path, follows: follows) else { return false }
        if folders[found] == nil { inotify_rm_watch(inotify.number, found) }
        return found == number
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
    /// - Parameter place: Where that folder is in another one of the tree.
    private mutating func join(_ root: FilePath, _ place: Place?, _ cause: Cause) throws(IOError) {
        var waiting = [(root, place)]
        while let (path, place) = waiting.popLast() {
            do throws(IOError) { waiting += try joinOne(path, place, cause) } catch {
                if let place, error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory {
                    missing.insert(place)
                    continue
                }
                let isLimit = error.errno == .noSpace || error.errno == .noMemory
                guard cause != .given || !isLimit && path != root else { throw error }
                events.append(.errorOccurred(error))
                if isLimit { return }
            }
        }
    }

    /// Watches the folder at `path` as part of a tree, and returns the folders in it.
    private mutating func joinOne(
        _ path: FilePath, _ place: Place?, _ cause: Cause
    ) throws(IOError) -> [(FilePath, Place?)] {
        let number = try change(path, follows: place == nil) { $0.isInTree = true }
        if let place, let known = folders[number], known.path != path {
            return moveMissed(number, known, to: place, cause) ? [(path, place)] : []
        }
        // Read after it is watched, so that nothing is missed in between.
        let entries = try attempt(.watch, "\(path)") { () throws(Errno) in try path.entries() }
        guard place == nil || isAt(path, number) else {
            leave(number) { $0.isInTree = false }
            throw IOError(.watch, "\(path)", .noSuchFileOrDirectory)
        }
        if folders[number]?.isUnsettled == false { unsettled.append(number) }
        folders[number]?.isUnsettled = true
        if cause.isReported {
            folders[number]?.found = Set(entries.map(\.name))
            events += entries.map { .created(path.entry($0.name)) }
        }
        return entries.filter(\.isFolder).map { (path.entry($0.name), Place(folder: number, name: $0.name)) }
    }

    /// Takes that a folder that is known elsewhere is at `place`, and returns whether it is not known any more.
    ///
    /// It has been moved, as a later change says; or a path that was given leads to it, too.
    private mutating func moveMissed(
        _ number: CInt, _ known: Folder, to place: Place, _ cause: Cause
    ) -> Bool {
        let isElsewhere = cause != .missing || !isAt(known.path, number, follows: !known.roots.isEmpty)
        guard isElsewhere else { return false }
        if cause != .missing || hasUnread {
            missing.insert(place)
            return false
        }
        // The move began or ended in a folder that was not watched, so no change says it.
        drop(known.path)
        leave(number) { $0.isInTree = false }
        return folders[number] == nil
    }

    /// Watches a folder of a tree that has appeared, perhaps in the place of another.
    private mutating func joinNew(_ path: FilePath, _ place: Place) {
        drop(path)
        missing.remove(place)
        try? join(path, place, .appeared)
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

    /// Stops watching the folders at and below `path` as part of a tree, though a tree may contain `path`.
    private mutating func drop(_ path: FilePath) {
        guard numbers[path] != nil else { return }
        for (number, folder) in folders where folder.isInTree && folder.path.starts(with: path) {
            leave(number) { $0.isInTree = false }
        }
    }

    /// As ``drop(_:)``: what is settled has been deleted empty.
    private mutating func dropDeleted(_ path: FilePath) {
        guard let number = numbers[path] else { return }
        if folders[number]?.isUnsettled == true { return drop(path) }
        leave(number) { $0.isInTree = false }
    }

    private mutating func rename(_ old: FilePath, to new: FilePath) {
        var unsettled: [(CInt, FilePath)] = []
        for (number, folder) in folders where folder.path.starts(with: old) {
            var path = folder.path
            _ = path.removePrefix(old)
            if folder.isUnsettled, !path.isEmpty { unsettled.append((number, new.pushing(path))) }
            path = path.isEmpty ? new : new.pushing(path)
            if numbers[folder.path] == number { numbers[folder.path] = nil }
            folders[number]?.path = path
            numbers[path] = number
        }
        for (number, path) in unsettled where folders[number] != nil && !isAt(path, number) {
            guard let place = place(of: path) else { continue }
            events.append(.created(path))
            joinNew(path, place)
        }
    }

    /// Where the folder at `path` is in another watched one.
    private func place(of path: FilePath) -> Place? {
        guard let folder = numbers[path.folder], let name = path.lastComponent else { return nil }
        return Place(folder: folder, name: name)
    }

    /// The path of what is at `place`; nil if the folder is not watched any more.
    private func path(of place: Place) -> FilePath? { folders[place.folder]?.path.entry(place.name) }

    /// Begins again, after changes were lost.
    private mutating func rescan() {
        let (before, known) = (folders, roots)
        (folders, numbers, moves) = ([:], [:], [:])
        (unsettled, settling, missing, doubted) = ([], [], [], [])
        for (path, root) in known {
            do throws(IOError) {
                if root.isFolder, !path.isFolder { throw IOError(.watch, "\(path)", .noSuchFileOrDirectory) }
                try begin(path, isFolder: root.isFolder, isRecursive: root.isRecursive, .overflow)
            } catch {
                unwatch(path)
                if error.errno != .noSuchFileOrDirectory { events.append(.errorOccurred(error)) }
                events.append(.vanished(path))
            }
        }
        for number in before.keys where folders[number] == nil { inotify_rm_watch(inotify.number, number) }
    }

    // MARK: Changes

    /// Reads up to `size` bytes of changes, and makes events of them.
    mutating func read(upTo size: Int) {
        guard readChanges(upTo: size) else { return }
        settling += exchange(&unsettled, with: [])
        while let change = changes.popFirst() { take(change) }
        guard isDrained else { return }
        for number in exchange(&settling, with: []) {
            folders[number]?.isUnsettled = false
            folders[number]?.found = []
        }
        resolveDoubts()
        findMissing()
    }

    /// Appends up to `size` bytes of what the kernel holds to `changes`; false if it holds nothing.
    private mutating func readChanges(upTo size: Int) -> Bool {
        let number = inotify.number
        var bytes: [UInt8] = []
        let count = bytes.append(upTo: size) { buffer in
            (try? SystemCall.read(number, into: &buffer)) ?? 0
        }
        // Less than the buffer holds is all that there was.
        isDrained = count <= size - FolderChange.sizeLimit
        changes += FolderChange.all(in: bytes)
        return count > 0
    }

    /// Looks again for the folders that were not where the kernel said, unless they may still be known where
    /// they were before.
    private mutating func findMissing() {
        guard !missing.isEmpty, !moves.contains(where: { $0.value.isFolder }) else { return }
        for place in exchange(&missing, with: []) where folders[place.folder]?.isInTree == true {
            guard let path = path(of: place) else { continue }
            try? join(path, place, .missing)
        }
    }

    /// Reports what was moved away before `date` as removed, unless the kernel may hold the second half.
    mutating func expireMoves(before date: Deadline) {
        guard !moves.isEmpty, !hasUnread else { return }
        for (cookie, move) in moves where move.date <= date { expire(cookie) }
        findMissing()
    }

    /// Reports what was moved to where it is not watched as removed.
    private mutating func expire(_ cookie: UInt32) {
        guard let move = moves.removeValue(forKey: cookie) else { return }
        folders[move.place.folder]?.departure = nil
        if move.isReported, let path = path(of: move.place) { events.append(.removed(path)) }
        guard move.isFolder, let path = oldPath(of: move) else { return }
        vanish(below: path)
        drop(path)
    }

    /// Where the watched folders still are that are being moved, though the folder above may be removed.
    private func oldPath(of move: Move) -> FilePath? {
        path(of: move.place) ?? move.number.flatMap { folders[$0]?.path }
    }

    private mutating func take(_ change: FolderChange) {
        if change.has(IN_Q_OVERFLOW) {
            events.append(.overflowed)
            return rescan()
        }
        guard let folder = folders[change.folder] else { return }
        if change.has(IN_IGNORED) { return forget(change.folder) }
        if hold(change, in: folder) { return }
        guard !change.has(IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT) else {
            return vanish(change.folder, folder)
        }
        guard let name = change.name else {
            if change.has(IN_ATTRIB) { events += folder.roots.map { .attributesChanged($0) } }
            return
        }
        // The kernel locks both folders of a move until it has queued both halves.
        if change.isOfNames, let departure = folder.departure, departure != change.cookie {
            expire(departure)
        }
        takeChange(change, of: Place(folder: change.folder, name: name))
    }

    /// Keeps a change within a folder that is being moved until it is known where that is.
    private mutating func hold(_ change: FolderChange, in folder: Folder) -> Bool {
        if change.name == nil { return false }
        for (cookie, move) in moves where move.isFolder {
            guard let path = oldPath(of: move), folder.path.starts(with: path) else { continue }
            moves[cookie]?.changes.append(change)
            return true
        }
        return false
    }

    /// Takes a change of a name in a folder, which is watched.
    private mutating func takeChange(_ change: FolderChange, of place: Place) {
        guard let folder = folders[place.folder] else { return }
        let isReported = folder.reports(place.name)
        if change.isOfNames {
            folders[place.folder]?.arrival = nil
            doubted.remove(place)
        }
        if change.has(IN_MOVED_FROM) { return depart(change, from: place, in: folder) }
        if change.has(IN_MOVED_TO), let move = moves.removeValue(forKey: change.cookie) {
            folders[move.place.folder]?.departure = nil
            finish(move, at: place, isReported)
            changes.insert(contentsOf: move.changes, at: changes.startIndex)
            return
        }
        guard isReported else { return }
        if change.has(IN_CREATE | IN_MOVED_TO) { return appear(change, place) }
        let path = folder.path.entry(place.name)
        if change.has(IN_DELETE) {
            forgetFound(place)
            if change.isOfFolder { dropDeleted(path) }
        }
        if let event = change.event(at: path) { events.append(event) }
    }

    /// The first half of a move.
    private mutating func depart(_ change: FolderChange, from place: Place, in folder: Folder) {
        let arrival = folder.arrival.flatMap { $0.name == place.name ? $0 : nil }
        moves[change.cookie] = Move(
            place: place, isFolder: change.isOfFolder, isReported: folder.reports(place.name), date: .now,
            number: change.isOfFolder ? known(at: folder.path.entry(place.name)) : nil, arrival: arrival)
        folders[place.folder]?.departure = change.cookie
        forgetFound(place)
    }

    /// Nothing is at `place` any more.
    private mutating func forgetFound(_ place: Place) {
        folders[place.folder]?.found.remove(place.name)
        missing.remove(place)
    }

    /// A file or folder has been made, or come from where it was not watched.
    private mutating func appear(_ change: FolderChange, _ place: Place) {
        // Reported already, when the folder was read.
        if change.has(IN_CREATE), folders[place.folder]?.found.remove(place.name) != nil { return }
        guard let path = path(of: place) else { return }
        events.append(.created(path))
        if change.isOfFolder, folders[place.folder]?.isInTree == true { joinNew(path, place) }
    }

    private mutating func finish(_ move: Move, at place: Place, _ isReported: Bool) {
        guard let path = path(of: place) else { return }
        guard let old = self.path(of: move.place) else { return arrive(path, place, move, isReported) }
        if let first = move.arrival, first.from == place {
            // The first half of an exchange has reported what is at the old path now.
            if isExchange(move, after: first, from: old, to: path) {
                return arrive(path, place, move, isReported)
            }
        } else {
            let arrival = Arrival(
                from: move.place, name: place.name, isFolder: move.isFolder,
                moved: known(at: old), replaced: known(at: path))
            folders[place.folder]?.arrival = arrival
        }
        if move.isFolder { vanish(below: old) }
        let (known, isInTree) = (numbers[old], folders[place.folder]?.isInTree == true)
        let isFollowed = move.isFolder && isInTree && known.map { folders[$0]?.isInTree == true } ?? false
        if let known, isFollowed, folders[known]?.isUnsettled == true, !isAt(path, known) {
            // Another folder: this one was at the old path when that was looked at.
            events.append(.removed(old))
            drop(old)
            return arrive(path, place, move, isReported)
        }
        if move.isReported { events.append(isReported ? .moved(from: old, to: path) : .removed(old)) }
        if !move.isReported { return arrive(path, place, move, isReported) }
        drop(path)
        if isFollowed { return rename(old, to: path) }
        drop(old)
        if move.isFolder, isInTree { joinNew(path, place) }
    }

    /// Reports what has been moved to `path` as new there.
    private mutating func arrive(_ path: FilePath, _ place: Place, _ move: Move, _ isReported: Bool) {
        guard isReported else { return }
        events.append(.created(path))
        if move.isFolder, folders[place.folder]?.isInTree == true { joinNew(path, place) } else { drop(path) }
    }

    // MARK: Exchanges

    /// Whether a move is the second of the two by which the kernel announces that two files or folders have been
    /// exchanged (renameat2(2)), and not the way back of the first.
    private mutating func isExchange(
        _ move: Move, after first: Arrival, from old: FilePath, to path: FilePath
    ) -> Bool {
        guard first.isFolder == move.isFolder else { return true }
        switch nextReturn(of: move, after: first) {
        case .exchange: return true
        case .wayBack: return false
        case .unknown(let mayAskDisk):
            let isBack = move.number.map { isAt(path, $0) } ?? !old.isTaken
            if mayAskDisk, isBack, !hasUnread { return false }
            doubted.insert(move.place)
            return true
        }
    }

    /// What later changes say of a move back. The kernel announces that a watched folder has been moved after
    /// both halves of the move, and a name that is removed or moved away was still there.
    private mutating func nextReturn(of move: Move, after first: Arrival) -> Return {
        var (index, mayAskDisk) = (changes.startIndex, true)
        while true {
            if index == changes.endIndex {
                let isEnough = isDrained || changes.count > Self.lookAheadLimit
                guard !isEnough, readChanges(upTo: FileWatcher.bytesPerPass) else { break }
            }
            let change = changes[index]
            index += 1
            if change.has(IN_MOVE_SELF), change.folder == first.moved { return .wayBack }
            if change.has(IN_MOVE_SELF), change.folder == first.replaced { return .exchange }
            if change.has(IN_MOVED_FROM), change.isOfFolder { mayAskDisk = false }
            guard change.isOfNames, change.folder == move.place.folder, change.name == move.place.name else {
                continue
            }
            if change.has(IN_MOVED_FROM | IN_DELETE) { return .exchange }
            return change.has(IN_CREATE) ? .wayBack : .unknown(mayAskDisk: false)
        }
        return .unknown(mayAskDisk: mayAskDisk && isDrained)
    }

    /// Corrects what was taken for exchanges once the disk shows that they were none.
    private mutating func resolveDoubts() {
        guard !doubted.isEmpty else { return }
        var wrong: [(Place, FilePath)] = []
        for place in doubted {
            guard let path = path(of: place), folders[place.folder]?.reports(place.name) == true else {
                continue
            }
            if !(known(at: path).map { isAt(path, $0) } ?? path.isTaken) { wrong.append((place, path)) }
        }
        // Later changes say what is there.
        guard !hasUnread else { return }
        doubted = []
        for (place, path) in wrong {
            drop(path)
            events.append(path.isTaken ? .created(path) : .removed(path))
            if folders[place.folder]?.isInTree == true { joinNew(path, place) }
        }
    }

    /// The number of the watched folder at `path`.
    private func known(at path: FilePath) -> CInt? {
        numbers[path].flatMap { folders[$0] == nil ? nil : $0 }
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
