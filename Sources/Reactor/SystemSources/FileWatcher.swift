import Glibc
public import SystemPackage

/// Calls a closure on a run loop's thread when files and folders change: inotify(7).
///
/// ```swift
/// let watcher = try FileWatcher { _, event in print(event) }
/// try watcher.watch("/etc", recursively: true)
/// try watcher.watch("settings.json")
/// try RunLoop.current.add(watcher, forMode: .default)
/// ```
///
/// A file is watched by its path, in its folder: the folder must exist, the file need not. An editor that saves by renaming a
/// new file causes no ``Event/modified(_:)``, but ``Event/created(_:)`` if only the file is watched, and
/// ``Event/moved(from:to:)`` if its folder is. The new file is watched from then on. Of a symbolic link to a file the link is
/// watched, not what is written through it.
///
/// A folder is watched for changes of what is in it; with ``watch(_:recursively:)`` also in all folders below, except through
/// symbolic links. Folders that appear later are watched too, and their contents are reported as created. A folder that moves
/// within what is watched is followed. A folder that was given itself and is removed, moved or unmounted is reported as
/// ``Event/vanished(_:)`` and no longer watched, even if another appears at its path: to learn that, watch the folder above.
///
/// Paths are reported as they were given; a relative one keeps its meaning when the process changes its current directory. If a
/// folder is watched by two paths, events report the first, even after that path is unwatched.
///
/// Events come in the order of the changes, and may be older than the disk: a path may be gone when it is reported. There are
/// two exceptions. The move of something to where it is not watched is reported after some milliseconds, or with the next
/// change of the names in its folder. And the contents of a new folder are reported with the folder, even if changes elsewhere
/// came before.
///
/// If changes come faster than the loop reads them, the kernel drops some. The watcher then watches the folders that exist now
/// and reports ``Event/overflowed``: look at the files yourself. Later events may repeat what you have seen then.
///
/// A watcher uses one descriptor, and one watch of the kernel for each folder. It reads folders on the loop's thread, a few
/// milliseconds at a time. So a large tree is not yet watched completely when ``watch(_:recursively:)`` returns:
/// ``Event/overflowed`` is reported when it is.
///
/// The closure is called and released on the loop's thread, and may capture anything. It may watch more paths, and close the
/// watcher, after which no event is delivered. The loop retains the watcher until it is cancelled. A watcher and its loop
/// belong to one thread; while it is in a loop, every method traps on another. In async code, use
/// ``RunLoop/fileEvents(at:recursively:inModes:)``.
public final class FileWatcher: EventSource {
    /// A change of a file, or of what is watched.
    @nonexhaustive public enum Event: Sendable, Hashable {
        /// A file or folder was created, or moved here from where it was not watched, perhaps replacing another. The contents
        /// of a folder are reported after it.
        case created(FilePath)
        /// A file has been written or truncated.
        case modified(FilePath)
        /// A file that was open for writing has been closed.
        case closedAfterWriting(FilePath)
        /// Permissions, owner, times, the number of links or extended attributes have changed.
        case attributesChanged(FilePath)
        /// A file or folder has been removed, or moved to where it is not watched.
        case removed(FilePath)
        /// A file or folder was moved or renamed, perhaps replacing another.
        ///
        /// A move back to where the last one began is ``removed(_:)`` and ``created(_:)``: it may be half of an exchange
        /// (renameat2(2)), after which ``created(_:)`` reports what is at the other path now.
        case moved(from: FilePath, to: FilePath)
        /// A folder that was given, or the folder of a file that was given, was removed, moved or unmounted. The path, as
        /// given, is no longer watched. That of a file that is itself removed or moved still is.
        case vanished(FilePath)
        /// Changes may have been missed: the kernel has dropped some, or a tree was too large for one call of
        /// ``FileWatcher/watch(_:recursively:)``. Everything is watched now; rescan the files.
        case overflowed
        /// A folder in a tree cannot be watched or read. The others are, but at a limit of the kernel those that were not
        /// watched yet are skipped.
        case errorOccurred(IOError)
    }

    /// The maximum that one pass reads: some two thousand events.
    static let bytesPerPass = 65_536
    /// After this time without its second half, a move counts as a removal. The kernel queues both halves within microseconds,
    /// unless the thread that moves is suspended in between.
    private static let movePatience = Duration.milliseconds(5)

    private var handler: ((FileWatcher, Event) -> Void)?
    private var tree: WatchedFolders?
    private var events: [Event] = []
    /// The number of `events` that have been delivered.
    private var delivered = 0
    /// Set when the watcher leaves a mode: the remaining events stay for the next one.
    private var isInterrupted = false

    /// Creates a watcher, which watches nothing yet.
    ///
    /// - Parameter handler: Called with the watcher and each event.
    /// - Throws: ``IOError`` with `Errno.noMemory` or `Errno.tooManyOpenFiles`; it names `fs.inotify.max_user_instances` if
    ///   that limit is reached.
    public init(handler: @escaping (FileWatcher, Event) -> Void) throws(IOError) {
        let tree = try WatchedFolders()
        let number = tree.inotify.number
        self.tree = consume tree
        self.handler = handler
        super.init(number, for: .readable)
    }

    override var summary: String {
        guard isValid, let (paths, folders) = tree?.counts else { return "file watcher (cancelled)" }
        return "file watcher: \(paths) paths, \(folders) folders"
    }

    /// The paths that are watched, as given, but without redundant dots and slashes.
    package var paths: [FilePath] {
        requireLoopThread()
        return tree?.roots.paths ?? []
    }

    /// Watches a file or a folder.
    ///
    /// Reads folders for a few milliseconds. The rest of a large tree is read on the loop, and then
    /// ``Event/overflowed`` is reported: changes in folders that were not watched yet have no event.
    ///
    /// - Parameters:
    ///   - path: A folder; or a file, which need not exist if its folder does. If a folder appears there, that is reported, but
    ///     not its contents.
    ///   - recursively: Whether the folders below are watched, too.
    /// - Throws: ``IOError``: an error of stat(2); `Errno.noSpace` at the limit `fs.inotify.max_user_watches`, which it names;
    ///   `Errno.noMemory`; `Errno.badFileDescriptor` if the watcher is closed. The path is then not watched, even if it was
    ///   before.
    public func watch(_ path: FilePath, recursively: Bool = false) throws(IOError) {
        requireLoopThread()
        guard tree != nil else { throw IOError(.watch, "\(path)", .badFileDescriptor) }
        defer { deliverLater() }
        try tree?.watch(path.normalized, recursively: recursively)
    }

    /// Stops watching a path that was given to ``watch(_:recursively:)``. Earlier changes may still be delivered.
    public func unwatch(_ path: FilePath) {
        requireLoopThread()
        tree?.unwatch(path.normalized)
        deliverLater()
    }

    override func releaseResources() {
        let handler = handler.take()
        tree = nil
        events = []
        withExtendedLifetime(handler) {}
    }

    // MARK: On the loop's thread

    override var subject: String { "files" }

    override var noun: String { "file watcher" }

    override var silence: String { paths.isEmpty ? "it watches no path" : "nothing has changed" }

    override var confirmsLateReadiness: Bool { false }

    override package func changeInterest(_ interest: Readiness) throws(Errno) {
        try super.changeInterest(interest)
        if !isInCallback { deliverLater() }
    }

    override func joined(_ mode: RunLoop.Mode) { deliverLater() }

    override func left(_ mode: RunLoop.Mode) {
        isInterrupted = true
        deliverLater()
    }

    override func serve(_ readiness: Readiness) -> Bool {
        isInterrupted = false
        // A pass that delivers what is left reads nothing, so that `events` stays bounded.
        if events.isEmpty { read() }
        let isHandled = delivered < events.count
        while !isEnded, !isInterrupted, delivered < events.count {
            delivered += 1
            handler?(self, events[delivered - 1])
        }
        guard !isEnded else { return isHandled }
        if delivered == events.count { (events, delivered) = ([], 0) }
        deliverLater()
        return isHandled
    }

    private func read() {
        tree?.advance()
        tree?.expireMoves(before: .now - Self.movePatience)
        events = tree?.takeEvents() ?? []
    }

    /// Ensures that events that the kernel does not announce are delivered.
    private func deliverLater() {
        if !events.isEmpty || tree?.hasWork == true { return markReady() }
        // While the watcher pauses, the second half waits where it is not read.
        guard tree?.moves.isEmpty == false, wakeTimer == nil, !watchedInterest.isEmpty else { return }
        markReady(after: Self.movePatience)
    }
}

extension FilePath {
    /// The same path without redundant dots and slashes; the current folder is a dot. Two dots may follow a symbolic link.
    fileprivate var normalized: FilePath {
        let path = FilePath(root: root, components.filter { $0.kind != .currentDirectory })
        return path.isEmpty ? "." : path
    }
}
