import Glibc
import SystemPackage

extension WatchedFolders {
    /// Watches the folder at `root` and those below as part of a tree.
    ///
    /// - Parameter place: Where that folder is in another one of the tree.
    mutating func join(_ root: FilePath, _ place: Place?, _ cause: Cause) throws(IOError) {
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
        let entries: [(name: FilePath.Component, isFolder: Bool)]
        do throws(Errno) {
            entries = try path.entries()
            if place != nil, !isAt(path, number) { throw .noSuchFileOrDirectory }
        } catch {
            leave(number) { $0.isInTree = false }
            throw IOError(.watch, "\(path)", error)
        }
        if folders[number]?.isUnsettled == false { unsettled.append(number) }
        folders[number]?.isUnsettled = true
        if cause.isReported {
            let names = Set(entries.map(\.name))
            folders[number]?.found = names
            folders[number]?.reported = names
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
    mutating func joinNew(_ path: FilePath, _ place: Place) {
        drop(path)
        missing.remove(place)
        try? join(path, place, .appeared)
    }

    /// Stops watching the folders at and below `path` that are in no other tree.
    mutating func leaveTree(_ path: FilePath) {
        for (number, folder) in folders where folder.isInTree && folder.path.starts(with: path) {
            if roots.contains(where: { $0.value.isRecursive && folder.path.starts(with: $0.key) }) {
                continue
            }
            leave(number) { $0.isInTree = false }
        }
    }

    /// Stops watching the folders at and below `path` as part of a tree, though a tree may contain `path`.
    mutating func drop(_ path: FilePath) {
        guard numbers[path] != nil else { return }
        for (number, folder) in folders where folder.isInTree && folder.path.starts(with: path) {
            leave(number) { $0.isInTree = false }
        }
    }

    /// As ``drop(_:)``: what is settled has been deleted empty.
    mutating func dropDeleted(_ path: FilePath) {
        guard let number = numbers[path] else { return }
        if folders[number]?.isUnsettled == true { return drop(path) }
        leave(number) { $0.isInTree = false }
    }

    mutating func rename(_ old: FilePath, to new: FilePath) {
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
            reportNew(path, place)
            joinNew(path, place)
        }
    }

    /// Begins again, after changes were lost.
    mutating func rescan() {
        let (before, known) = (folders, roots)
        (folders, numbers, moves) = ([:], [:], [:])
        (unsettled, settling, missing, doubted) = ([], [], [], [:])
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
}
