import Glibc
import SystemPackage

extension WatchedFolders {
    /// Handles changes and reads folders, for some milliseconds.
    mutating func advance() {
        let start = Deadline.now
        work(until: start + Self.patience / 2)
        // Alternates both: unread changes overflow the kernel's queue.
        let isInTime = Deadline.now < start + Self.patience / 2
        if inotify.changes.isEmpty {
            inotify.readChanges(upTo: FileWatcher.bytesPerPass)
            settling += exchange(&unsettled, with: [])
        }
        while let change = inotify.changes.popFirst() {
            take(change)
            if isInTime { work(until: start + Self.patience) }
            if start + Self.patience < .now { break }
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
        if move.isReported, let path = path(of: move.place) { events.append(.removed(path)) }
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
            for (cookie, move) in moves where cookie != change.cookie && move.place.folder == change.folder {
                expire(cookie)
            }
        }
        takeChange(change, of: Place(folder: change.folder, name: name), in: folder)
    }

    /// Handles a change of a name in a watched folder.
    private mutating func takeChange(_ change: FolderChange, of place: Place, in folder: Folder) {
        if change.isOfNames {
            for reader in readers where reader.number == place.folder { reader.changed.insert(place.name) }
        }
        if change.has(IN_MOVED_FROM) { return depart(change, from: place, in: folder) }
        let move = change.has(IN_MOVED_TO) ? take(change.cookie) : nil
        if change.isOfNames { folder.arrival = change.has(IN_MOVED_TO) ? (place.name, move?.place) : nil }
        if let move {
            finish(move, at: place, in: folder)
            appearIfExchanged(move)
            if !move.changes.isEmpty {
                inotify.changes.insert(contentsOf: move.changes, at: inotify.changes.startIndex)
            }
            return
        }
        guard folder.reports(place.name) else { return }
        if change.has(IN_CREATE), folder.reported?[place.name] == true {
            folder.reported?[place.name] = false
            return
        }
        if change.has(IN_CREATE | IN_MOVED_TO) { return appear(at: place, isFolder: change.isOfFolder) }
        let isReported = folder.hasReported(place.name)
        if change.has(IN_DELETE) { forget(place) }
        if isReported, let path = path(of: place), let event = change.event(at: path) { events.append(event) }
    }

    /// The first half of a move.
    private mutating func depart(_ change: FolderChange, from place: Place, in folder: Folder) {
        guard let path = path(of: place, onDisk: true) else { return }
        let arrival = exchange(&folder.arrival, with: nil)
        let number = change.isOfFolder ? folder.children.removeValue(forKey: place.name) : nil
        // The folder that was found there came later.
        let isOther = folder.children[place.name] != nil
        if isOther, let path = self.path(of: place) { events.append(.removed(path)) }
        moves[change.cookie] = Move(
            place: place, path: path, isFolder: change.isOfFolder,
            isReported: folder.hasReported(place.name) && !isOther, date: .now, number: number,
            arrival: arrival?.name == place.name ? arrival : nil)
        if let number { folders[number]?.move = change.cookie }
        forget(place)
    }

    /// Nothing is at `place` any more.
    private mutating func forget(_ place: Place) {
        folders[place.folder]?.reported?[place.name] = nil
        missing.remove(place)
        drop(place)
    }

    /// Reports that a file or folder is at `place`, perhaps replacing another.
    mutating func appear(at place: Place, isFolder: Bool) {
        guard let folder = folders[place.folder], let path = path(of: place) else { return }
        events.append(.created(path))
        folder.reported?[place.name] = false
        missing.remove(place)
        drop(place)
        if isFolder, folder.isInTree { unread.append((place, .appeared)) }
    }

    /// Reports what is where the move began, if it may be half of an exchange (renameat2(2)).
    private mutating func appearIfExchanged(_ move: Move) {
        let place = move.place
        guard move.arrival != nil, folders[place.folder]?.reports(place.name) == true,
            let path = path(of: place, onDisk: true), path.isTaken
        else { return }
        appear(at: place, isFolder: true)
    }

    /// The second half of a move.
    private mutating func finish(_ move: Move, at place: Place, in folder: Folder) {
        let isReported = folder.reports(place.name)
        if move.isFolder { vanish(below: move.path) }
        let old = move.isReported ? self.path(of: move.place) : nil
        let followed = move.number.flatMap { folders[$0] != nil && folder.isInTree ? $0 : nil }
        // A way back may be the second half of an exchange: another file or folder has come.
        let isOther =
            move.arrival?.from == place || followed.map { isUnsettledElsewhere($0, than: place) } ?? false
        guard let old, let path = path(of: place), isReported, !isOther else {
            if let old { events.append(.removed(old)) }
            if isReported { appear(at: place, isFolder: move.isFolder) }
            return
        }
        events.append(.moved(from: old, to: path))
        folder.reported?[place.name] = false
        drop(place)
        if let followed, link(followed, at: place) {
            checkUnsettled(below: followed)
        } else if move.isFolder, folder.isInTree {
            unread.append((place, .appeared))
        }
    }

    /// Whether another folder was taken for the one that is moved, because it was at that place when the place was looked up.
    private func isUnsettledElsewhere(_ number: CInt, than place: Place) -> Bool {
        guard folders[number]?.isUnsettled == true, let path = path(of: place, onDisk: true) else {
            return false
        }
        return !isAt(path, number)
    }
}
