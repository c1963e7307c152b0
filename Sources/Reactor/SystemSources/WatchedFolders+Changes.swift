import Glibc
import SystemPackage

extension WatchedFolders {
    /// Reads up to `size` bytes of changes, and makes events of them.
    mutating func read(upTo size: Int) {
        guard readChanges(upTo: size) else { return }
        settling += exchange(&unsettled, with: [])
        while let change = changes.popFirst() { take(change) }
        guard isDrained else { return }
        for number in exchange(&settling, with: []) {
            folders[number]?.isUnsettled = false
            folders[number]?.found = []
            folders[number]?.reported = nil
        }
        resolveDoubts()
        findMissing()
    }

    /// Appends up to `size` bytes of what the kernel holds to `changes`; false if it holds nothing.
    mutating func readChanges(upTo size: Int) -> Bool {
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
        resolveDoubts()
        findMissing()
    }

    /// Reports what was moved to where it is not watched as removed.
    private mutating func expire(_ cookie: UInt32) {
        guard let move = moves.removeValue(forKey: cookie) else { return }
        folders[move.place.folder]?.departure = nil
        if move.isReported, let path = path(of: move.place) {
            events.append(.removed(path))
            // What it was exchanged for, if that was not watched.
            doubted[move.place] = false
        }
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
            doubted[place] = nil
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
            forget(place)
            if change.isOfFolder { dropDeleted(path) }
        }
        if folder.hasReported(place.name), let event = change.event(at: path) { events.append(event) }
    }

    /// The first half of a move.
    private mutating func depart(_ change: FolderChange, from place: Place, in folder: Folder) {
        let arrival = folder.arrival.flatMap { $0.name == place.name ? $0 : nil }
        moves[change.cookie] = Move(
            place: place, isFolder: change.isOfFolder, isReported: folder.hasReported(place.name), date: .now,
            number: change.isOfFolder ? known(at: folder.path.entry(place.name)) : nil, arrival: arrival)
        folders[place.folder]?.departure = change.cookie
        forget(place)
    }

    /// Nothing is at `place` any more.
    private mutating func forget(_ place: Place) {
        folders[place.folder]?.found.remove(place.name)
        folders[place.folder]?.reported?.remove(place.name)
        missing.remove(place)
    }

    /// A file or folder has been made, or come from where it was not watched.
    private mutating func appear(_ change: FolderChange, _ place: Place) {
        // Reported already, when the folder was read.
        if change.has(IN_CREATE), folders[place.folder]?.found.remove(place.name) != nil { return }
        guard let path = path(of: place) else { return }
        reportNew(path, place)
        if change.isOfFolder, folders[place.folder]?.isInTree == true { joinNew(path, place) }
    }

    /// Reports that something is at `place` that was not reported there.
    mutating func reportNew(_ path: FilePath, _ place: Place) {
        events.append(.created(path))
        folders[place.folder]?.reported?.insert(place.name)
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
        if !move.isReported { return arrive(path, place, move, isReported) }
        events.append(isReported ? .moved(from: old, to: path) : .removed(old))
        folders[place.folder]?.reported?.insert(place.name)
        drop(path)
        if isFollowed { return rename(old, to: path) }
        drop(old)
        if move.isFolder, isInTree { joinNew(path, place) }
    }

    /// Reports what has been moved to `path` as new there.
    private mutating func arrive(_ path: FilePath, _ place: Place, _ move: Move, _ isReported: Bool) {
        guard isReported else { return }
        reportNew(path, place)
        if move.isFolder, folders[place.folder]?.isInTree == true { joinNew(path, place) } else { drop(path) }
    }

    /// A folder has been moved, and with it what was given below: the kernel tells that of the folder alone.
    private mutating func vanish(below path: FilePath) {
        for (number, folder) in folders where folder.path != path && folder.path.starts(with: path) {
            endRoots(of: number, folder)
        }
    }

    /// A watched folder is not at its path any more. Those below others are reported there.
    private mutating func vanish(_ number: CInt, _ folder: Folder) {
        vanish(below: folder.path)
        endRoots(of: number, folder)
    }

    /// Stops watching the paths that were given for a folder and for the files in it, but for those that lead to it: they
    /// were given after it was moved.
    private mutating func endRoots(of number: CInt, _ folder: Folder) {
        let given = folder.files.values.joined().map { ($0, $0.folder) } + folder.roots.map { ($0, $0) }
        let left = given.filter { !isAt($0.1, number, follows: true) }
        let kept = given.first { path, _ in !left.contains { $0.0 == path } }?.1
        if !left.isEmpty, let kept, !isAt(folder.path, number, follows: true) {
            rename(folder.path, to: kept)
        }
        for (path, _) in left {
            let root = roots.removeValue(forKey: path)
            events.append(.vanished(path))
            leave(number) { folder in
                folder.roots.remove(path)
                if let name = path.lastComponent { folder.remove(path, of: name) }
            }
            if root?.isRecursive == true { for top in [path, kept ?? path] { leaveTree(top) } }
        }
    }
}
