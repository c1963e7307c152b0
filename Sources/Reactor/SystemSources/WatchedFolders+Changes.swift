import Glibc
import SystemPackage

extension WatchedFolders {
    /// Handles changes and reads folders, for some milliseconds.
    mutating func advance() {
        let start = Deadline.now
        work(until: start + Self.timeSlice / 2)
        // Alternates both: unread changes overflow the kernel's queue.
        let isInTime = Deadline.now < start + Self.timeSlice / 2
        if inotify.changes.isEmpty {
            inotify.readChanges(upTo: FileWatcher.bytesPerPass)
            settling += exchange(&unsettled, with: [])
        }
        while let change = inotify.changes.popFirst() {
            take(change)
            if isInTime { work(until: start + Self.timeSlice) }
            if start + Self.timeSlice < .now { break }
        }
        guard inotify.changes.isEmpty, inotify.isDrained else { return }
        settle()
        findMissing()
    }

    private mutating func settle() {
        for number in exchange(&settling, with: []) {
            guard let folder = folders[number] else { continue }
            // Until it is read, its contents are compared with the changes.
            if folder.isBeingRead {
                unsettled.append(number)
            } else {
                (folder.isUnsettled, folder.reported) = (false, nil)
            }
        }
    }

    /// Looks again for folders that were not found, unless a pending move may explain that.
    private mutating func findMissing() {
        guard !moves.contains(where: { $0.value.isFolder }) else { return }
        unread += exchange(&missing, with: []).map { ($0, .missing) }
    }

    /// Reports what was moved before `date` as removed, unless the kernel may hold the second half.
    mutating func expireMoves(before date: Deadline) {
        guard !moves.isEmpty, inotify.changes.isEmpty, !inotify.hasUnread else { return }
        for (cookie, move) in moves where move.date <= date { expire(cookie) }
        findMissing()
    }

    /// Reports what was moved to where it is not watched as removed.
    private mutating func expire(_ cookie: UInt32) {
        guard let move = take(cookie) else { return }
        if move.isFolder { vanish(below: move.path) }
        if move.isReported, let path = path(of: move.entry) { events.append(.removed(path)) }
        appearIfExchanged(move)
    }

    /// Returns a move that no longer waits for its second half. Its folder is cut off until it has another place.
    private mutating func take(_ cookie: UInt32) -> Move? {
        guard let move = moves.removeValue(forKey: cookie) else { return nil }
        if let number = move.number {
            folders[number]?.move = nil
            cut.append(number)
        }
        return move
    }

    private mutating func take(_ change: FolderChange) {
        if change.has(IN_Q_OVERFLOW) { return rescan() }
        guard let folder = folders[change.folder] else { return }
        if change.has(IN_IGNORED) { return forget(change.folder) }
        guard !change.has(IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT) else {
            if let location = folder.location { vanish(below: location.absolute) }
            return endRoots(of: change.folder)
        }
        guard let name = change.name else {
            if change.has(IN_ATTRIB) {
                events += folder.given[nil, default: []].map { .attributesChanged($0) }
            }
            return
        }
        switch whereabouts(of: change.folder) {
        case .at: break
        case .inMove(let cookie):
            moves[cookie]?.changes.append(change)
            return
        case .nowhere: return
        }
        // The kernel locks both folders of a move until it has queued both halves.
        if change.isOfNames {
            for (cookie, move) in moves where cookie != change.cookie && move.entry.folder == change.folder {
                expire(cookie)
            }
        }
        takeChange(change, of: FolderEntry(folder: change.folder, name: name), in: folder)
    }

    /// Handles a change of a name in a watched folder.
    private mutating func takeChange(_ change: FolderChange, of entry: FolderEntry, in folder: Folder) {
        if change.isOfNames {
            for reader in readers where reader.number == entry.folder { reader.changed.insert(entry.name) }
        }
        if change.has(IN_MOVED_FROM) { return depart(change, from: entry, in: folder) }
        let move = change.has(IN_MOVED_TO) ? take(change.cookie) : nil
        if change.isOfNames { folder.arrival = change.has(IN_MOVED_TO) ? (entry.name, move?.entry) : nil }
        if let move {
            finish(move, at: entry, in: folder)
            appearIfExchanged(move)
            if !move.changes.isEmpty {
                inotify.changes.insert(contentsOf: move.changes, at: inotify.changes.startIndex)
            }
            return
        }
        guard folder.reports(entry.name) else { return }
        if change.has(IN_CREATE), folder.reported?[entry.name] == true {
            folder.reported?[entry.name] = false
            return
        }
        if change.has(IN_CREATE | IN_MOVED_TO) { return appear(at: entry, isFolder: change.isOfFolder) }
        let isReported = folder.hasReported(entry.name)
        if change.has(IN_DELETE) { forget(entry) }
        if isReported, let path = path(of: entry), let event = change.event(at: path) { events.append(event) }
    }

    /// The first half of a move.
    private mutating func depart(_ change: FolderChange, from entry: FolderEntry, in folder: Folder) {
        guard let path = path(of: entry, onDisk: true) else { return }
        let arrival = exchange(&folder.arrival, with: nil)
        let number = change.isOfFolder ? folder.children.removeValue(forKey: entry.name) : nil
        // The folder that was found there came later.
        let isOther = folder.children[entry.name] != nil
        if isOther, let path = self.path(of: entry) { events.append(.removed(path)) }
        moves[change.cookie] = Move(
            entry: entry, path: path, isFolder: change.isOfFolder,
            isReported: folder.hasReported(entry.name) && !isOther, date: .now, number: number,
            arrival: arrival?.name == entry.name ? arrival : nil)
        if let number { folders[number]?.move = change.cookie }
        forget(entry)
    }

    /// Nothing is at `entry` any more.
    private mutating func forget(_ entry: FolderEntry) {
        folders[entry.folder]?.reported?[entry.name] = nil
        missing.remove(entry)
        drop(entry)
    }

    /// Reports that a file or folder is at `entry`, perhaps replacing another.
    mutating func appear(at entry: FolderEntry, isFolder: Bool) {
        guard let folder = folders[entry.folder], let path = path(of: entry) else { return }
        events.append(.created(path))
        folder.reported?[entry.name] = false
        missing.remove(entry)
        drop(entry)
        if isFolder, folder.isInTree { unread.append((entry, .appeared)) }
    }

    /// Reports what is where the move began, if it may be half of an exchange (renameat2(2)).
    private mutating func appearIfExchanged(_ move: Move) {
        let entry = move.entry
        guard move.arrival != nil, folders[entry.folder]?.reports(entry.name) == true,
            let path = path(of: entry, onDisk: true), path.isTaken
        else { return }
        appear(at: entry, isFolder: true)
    }

    /// The second half of a move.
    private mutating func finish(_ move: Move, at entry: FolderEntry, in folder: Folder) {
        let isReported = folder.reports(entry.name)
        if move.isFolder { vanish(below: move.path) }
        let old = move.isReported ? self.path(of: move.entry) : nil
        let followed = move.number.flatMap { folders[$0] != nil && folder.isInTree ? $0 : nil }
        // A way back may be the second half of an exchange: another file or folder has come.
        let isOther =
            move.arrival?.from == entry || followed.map { isUnsettledElsewhere($0, than: entry) } ?? false
        guard let old, let path = path(of: entry), isReported, !isOther else {
            if let old { events.append(.removed(old)) }
            if isReported { appear(at: entry, isFolder: move.isFolder) }
            return
        }
        events.append(.moved(from: old, to: path))
        folder.reported?[entry.name] = false
        drop(entry)
        if let followed, link(followed, at: entry) {
            checkUnsettled(below: followed)
        } else if move.isFolder, folder.isInTree {
            unread.append((entry, .appeared))
        }
    }

    /// Whether another folder was taken for the one that is moved, because it was at that place when the place was looked up.
    private func isUnsettledElsewhere(_ number: CInt, than entry: FolderEntry) -> Bool {
        guard folders[number]?.isUnsettled == true, let path = path(of: entry, onDisk: true) else {
            return false
        }
        return !isAt(path, number)
    }
}
