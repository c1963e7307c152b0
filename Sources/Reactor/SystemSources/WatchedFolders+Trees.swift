import Glibc
import SystemPackage

// The links of folders in trees.
extension WatchedFolders {
    /// Where a watched folder is.
    enum Whereabouts {
        case at(Location, below: [FilePath.Component])
        /// In the move with that cookie, or below a folder that is: not known yet.
        case inMove(UInt32)
        /// In a tree that is no longer watched.
        case nowhere
    }

    func whereabouts(of number: CInt) -> Whereabouts {
        var (number, names): (CInt, [FilePath.Component]) = (number, [])
        while let folder = folders[number] {
            if let cookie = folder.move { return .inMove(cookie) }
            if let location = folder.location { return .at(location, below: names.reversed()) }
            guard let entry = folder.entry, isLinked(number, at: entry) else { return .nowhere }
            names.append(entry.name.component)
            number = entry.folder
        }
        return .nowhere
    }

    private func isInMove(_ number: CInt) -> Bool {
        if case .inMove = whereabouts(of: number) { true } else { false }
    }

    /// The path of a watched folder, as it is reported or on the disk; nil if it is not known.
    func path(of number: CInt, onDisk: Bool = false) -> FilePath? {
        guard case .at(let location, let names) = whereabouts(of: number) else { return nil }
        var path = onDisk ? location.absolute : location.given
        if names.isEmpty { return path }
        if path == "." { path = FilePath() }
        path.append(names)
        return path
    }

    /// The path of what is at `entry`.
    func path(of entry: FolderEntry, onDisk: Bool = false) -> FilePath? {
        path(of: entry.folder, onDisk: onDisk)?.entry(entry.name.component)
    }

    private func isLinked(_ number: CInt, at entry: FolderEntry) -> Bool {
        folders[entry.folder]?.children[entry.name] == number
    }

    /// The entry of a folder, if the folder there knows it.
    private func linkedEntry(of number: CInt) -> FolderEntry? {
        folders[number]?.entry.flatMap { isLinked(number, at: $0) ? $0 : nil }
    }

    private func isBelow(_ number: CInt, _ folder: CInt) -> Bool {
        var number = number
        while number != folder {
            guard let entry = linkedEntry(of: number) else { return false }
            number = entry.folder
        }
        return true
    }

    /// Links the folder `number` at `entry`; returns false if the entry is in that folder.
    @discardableResult mutating func link(_ number: CInt, at entry: FolderEntry) -> Bool {
        guard let folder = folders[number], let parent = folders[entry.folder], !isBelow(entry.folder, number)
        else { return false }
        unlink(number)
        if let other = parent.children.updateValue(number, forKey: entry.name) { cut.append(other) }
        (folder.entry, folder.move) = (entry, nil)
        return true
    }

    mutating func unlink(_ number: CInt) {
        guard let entry = linkedEntry(of: number) else { return }
        folders[entry.folder]?.children[entry.name] = nil
    }

    /// Stops watching the folder that was at `entry`, with those below, as part of a tree.
    mutating func drop(_ entry: FolderEntry) {
        if let number = folders[entry.folder]?.children.removeValue(forKey: entry.name) { cut.append(number) }
    }

    /// Stops watching a folder and those below as part of a tree, unless they are part of another.
    mutating func leaveTree(_ number: CInt) {
        guard let folder = folders[number] else { return }
        let isLinked = linkedEntry(of: number).map { folders[$0.folder]?.isInTree == true } ?? false
        let isRoot = folder.given[nil]?.contains { roots[$0]?.isRecursive == true } ?? false
        if !isLinked, folder.move == nil, !isRoot {
            folder.isInTree = false
            cut += exchange(&folder.children, with: [:]).values
        }
        endIfUnneeded(number)
    }

    /// Ends a folder whose link was cut, unless it has been found again or was given itself.
    private mutating func endCut(_ number: CInt) {
        guard let folder = folders[number], folder.move == nil, linkedEntry(of: number) == nil else { return }
        folder.location = folder.location ?? folder.given.values.joined().first.flatMap { roots[$0]?.home }
        leaveTree(number)
    }

    // MARK: Reading

    /// Reads and ends folders until `end`, and some in any case.
    mutating func work(until end: Deadline) {
        // Small trees are watched at once on a busy machine, too.
        var count = 0
        while step() {
            count += 1
            if count >= 32, end < .now { return }
        }
    }

    /// Whether there is more to do without a further change.
    var hasWork: Bool {
        !(events.isEmpty && inotify.changes.isEmpty && cut.isEmpty && unread.isEmpty && lost.isEmpty)
            || readable != nil
            || isIncomplete && readers.isEmpty
    }

    /// The last folder that is being read, but for those that are being moved.
    private var readable: Int? { readers.lastIndex { !isInMove($0.number) } }

    private mutating func step() -> Bool {
        if let number = cut.popLast() {
            endCut(number)
        } else if let index = readable {
            readSome(readers[index], at: index)
        } else if let (entry, cause) = unread.popLast() {
            visit(entry, cause)
        } else if let path = lost.popLast() {
            beginAgain(path)
        } else if isIncomplete, readers.isEmpty {
            isIncomplete = false
            cut += exchange(&stale, with: [])
            events.append(.overflowed)
        } else {
            return false
        }
        return true
    }

    /// Begins to read a watched folder.
    mutating func read(_ number: CInt, _ path: FilePath, _ cause: FolderReader.Cause) throws(Errno) {
        guard let folder = folders[number] else { return }
        // Read after it is watched, so that nothing is missed in between.
        let reader = try FolderReader(path, number, cause)
        guard isAt(path, number, follows: folder.location != nil) else { throw .noSuchFileOrDirectory }
        if !folder.isUnsettled { unsettled.append(number) }
        (folder.isUnsettled, folder.isBeingRead) = (true, true)
        folder.reported = cause.isReported ? [:] : nil
        if cause == .overflow { stale += exchange(&folder.children, with: [:]).values }
        readers.removeAll { $0.number == number }
        readers.append(reader)
    }

    /// Reads some names of a folder.
    private mutating func readSome(_ reader: FolderReader, at index: Int) {
        // A fraction of a millisecond, with their events.
        var rest = 256
        do throws(Errno) {
            if let folder = folders[reader.number], folder.isInTree, let path = path(of: reader.number) {
                while rest > 0, let (name, mayBeFolder) = try reader.next() {
                    rest -= 1
                    if reader.changed.contains(name) { continue }
                    if reader.cause.isReported {
                        folder.reported?[name] = true
                        events.append(.created(path.entry(name.component)))
                    }
                    guard mayBeFolder else { continue }
                    reader.folderCount += 1
                    unread.append((FolderEntry(folder: reader.number, name: name), reader.cause))
                }
                if rest == 0 { return }
            }
        } catch {
            events.append(
                .errorOccurred(IOError(.watch, path(of: reader.number)?.string ?? "a folder", error)))
        }
        folders[reader.number]?.isBeingRead = false
        // A large dictionary takes milliseconds to grow.
        folders[reader.number]?.children.reserveCapacity(reader.folderCount)
        readers.remove(at: index)
    }

    /// Watches the folder at `entry` as part of a tree, and begins to read it.
    private mutating func visit(_ entry: FolderEntry, _ cause: FolderReader.Cause) {
        guard folders[entry.folder]?.isInTree == true else { return }
        guard let path = path(of: entry, onDisk: true) else {
            if isInMove(entry.folder) { missing.insert(entry) }
            return
        }
        do throws(Errno) {
            guard let number = try enter(path, entry, cause) else { return }
            folders[number]?.isInTree = true
            do { try read(number, path, cause) } catch {
                drop(entry)
                throw error
            }
        } catch {
            fail(error, at: entry, cause)
        }
    }

    /// Links the folder at `path` at `entry`; returns nil if it is already, or if later changes may say that another is there.
    private mutating func enter(
        _ path: FilePath, _ entry: FolderEntry, _ cause: FolderReader.Cause
    ) throws(Errno) -> CInt? {
        var number = try inotify.watch(path, follows: false)
        if folders[number]?.location != nil {
            endRoots(of: number)
            if folders[number] == nil { number = try inotify.watch(path, follows: false) }
        }
        let folder = folders[number] ?? Folder()
        folders[number] = folder
        if folder.move != nil || linkedEntry(of: number).map({ $0 != entry }) ?? false {
            // It has been moved, as a later change says; or another path leads to it, too.
            if cause != .missing || inotify.hasUnread {
                missing.insert(entry)
                return nil
            }
            if let known = self.path(of: number, onDisk: true), isAt(known, number) { return nil }
            // The move began or ended in a folder that was not watched, so no change says it.
        }
        // A move has brought it here, with what is known of it, since it was to be looked for.
        if cause.isReported, linkedEntry(of: number) == entry { return nil }
        if link(number, at: entry) { return number }
        // The entry is in the folder: in a loop of bind mounts, it stays there.
        if cause != .missing || inotify.hasUnread { missing.insert(entry) }
        return nil
    }

    private mutating func fail(_ error: Errno, at entry: FolderEntry, _ cause: FolderReader.Cause) {
        if error == .noSuchFileOrDirectory || error == .notDirectory {
            // Still missing after all changes were read: it is gone.
            if cause != .missing || inotify.hasUnread { missing.insert(entry) }
            return
        }
        let path = path(of: entry)?.string ?? "a folder"
        let error = IOError(.watch, path + error.watchLimit, error)
        guard error.errno == .noSpace || error.errno == .noMemory else {
            return events.append(.errorOccurred(error))
        }
        unread = []
        if cause == .given, !isIncomplete { refusal = error } else { events.append(.errorOccurred(error)) }
    }

    /// Checks whether the unsettled folders below `number`, which was moved, are where they were announced.
    mutating func checkUnsettled(below number: CInt) {
        for other in unsettled + settling where other != number && isBelow(other, number) {
            guard let entry = folders[other]?.entry, let path = path(of: other, onDisk: true),
                !isAt(path, other)
            else { continue }
            appear(at: entry, isFolder: true)
        }
    }

    // MARK: Lost changes

    /// Begins again, after changes were lost.
    mutating func rescan() {
        for move in moves.values {
            guard let number = move.number else { continue }
            folders[number]?.move = nil
            stale.append(number)
        }
        (moves, missing, readers, unread) = ([:], [], [], [])
        for folder in unsettled + settling { folders[folder]?.isBeingRead = false }
        (lost, isIncomplete) = (roots.paths, true)
    }

    private mutating func beginAgain(_ path: FilePath) {
        guard let root = roots[path] else { return }
        do throws(IOError) {
            let isThere = isAt(root.home.absolute, root.folder, follows: true)
            if !isThere { endRoot(path) }
            try begin(root.location, isFolder: root.name == nil, isRecursive: root.isRecursive, .overflow)
        } catch {
            endRoot(path)
            if ![.noSuchFileOrDirectory, .notDirectory].contains(error.errno) {
                events.append(.errorOccurred(error))
            }
            events.append(.vanished(path))
        }
    }
}
