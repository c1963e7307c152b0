import Glibc
import SystemPackage

// The kernel announces an exchange of two files or folders (renameat2(2)) as two moves.
extension WatchedFolders {
    /// What a move back to where the last one began is.
    private enum Return {
        /// The second half of an exchange.
        case exchange
        case wayBack
        /// The changes that were read do not say.
        case unknown(mayAskDisk: Bool)
    }

    /// How many changes are read ahead to learn what a move back was: four reads of short names.
    private static let lookAheadLimit = 8_192

    /// Whether a move is the second of the two by which the kernel announces that two files or folders have been
    /// exchanged (renameat2(2)), and not the way back of the first.
    mutating func isExchange(
        _ move: Move, after first: Arrival, from old: FilePath, to path: FilePath
    ) -> Bool {
        guard first.isFolder == move.isFolder else { return true }
        switch nextReturn(of: move, after: first) {
        case .exchange: return true
        case .wayBack: return false
        case .unknown(let mayAskDisk):
            let isBack = move.number.map { isAt(path, $0) } ?? !old.isTaken
            if mayAskDisk, isBack, !hasUnread { return false }
            doubted[move.place] = true
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

    /// Corrects what the changes say where they do not tell what is on the disk.
    mutating func resolveDoubts() {
        guard !doubted.isEmpty else { return }
        var wrong: [(Place, FilePath)] = []
        for (place, isThere) in doubted {
            guard let path = path(of: place), folders[place.folder]?.reports(place.name) == true else {
                continue
            }
            let isTaken = (isThere ? known(at: path) : nil).map { isAt(path, $0) } ?? path.isTaken
            if isTaken != isThere { wrong.append((place, path)) }
        }
        // Later changes say what is there.
        guard !hasUnread else { return }
        doubted = [:]
        for (place, path) in wrong {
            drop(path)
            if path.isTaken { reportNew(path, place) } else { events.append(.removed(path)) }
            if folders[place.folder]?.isInTree == true { joinNew(path, place) }
        }
    }
}
