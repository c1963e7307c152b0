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
/// A file is watched by its path, in its folder. The folder must exist, the file need not. An editor that saves
/// by renaming a new file to the old one's name is no ``Event/modified(_:)``: it is ``Event/created(_:)`` where
/// only the file is watched, and ``Event/moved(from:to:)`` where its folder is. The new file is watched from then
/// on.
///
/// A relative path keeps its meaning when the process changes its current directory, and is reported as given.
///
/// A file that was given as a symbolic link is that link: what is written through it is not reported. In a folder
/// that was given by two paths, events have the one that was given first, also once that is given up.
///
/// A folder is watched for the changes of what is in it, with ``watch(_:recursively:)`` also in all folders below.
/// Those that appear later are watched as well, and what they contain by then is reported as created. A folder is
/// followed when it is moved within what is watched; symbolic links are not followed below the path that was
/// given. If a folder that was given is itself removed, moved or unmounted, it is ``Event/vanished(_:)``, and its
/// path is not watched any more, even if there is a folder again: watch the folder above to learn that.
///
/// Events come in the order of the changes, whatever is watched, and may be older than what is on the disk: a
/// path may be gone when it is reported. There are two exceptions. That something was moved to where it is not
/// watched is reported when no second half of the move has come for some milliseconds, or with the next change
/// of the names in its folder. And what a new folder contains is reported with the folder, though changes
/// elsewhere may have come before.
///
/// When changes come faster than the loop takes them, the kernel drops some. The watcher then watches the folders
/// that are there now, and reports ``Event/overflowed``. It does not know what has changed in them: the client looks
/// at the files itself. Later events may repeat what it has seen then.
///
/// One watcher uses one descriptor, whatever it watches, and the kernel one watch for each folder. Folders are read
/// on the loop's thread, for a few milliseconds at a time, between other events. So a large tree is not watched
/// completely when ``watch(_:recursively:)`` returns: ``Event/overflowed`` is reported when it is.
///
/// The closure is called and released on the loop's thread, and may capture anything. It may watch further
/// paths, and close the watcher: no event is delivered after that. The loop keeps the watcher alive until it
/// is closed. A watcher and its loop belong to one thread; every method traps on another. A task awaits
/// ``RunLoop/fileEvents(at:recursively:inModes:)``.
public final class FileWatcher: EventSource {
    /// A change of a file, or of what is watched.
    public enum Event: Sendable, Hashable {
        /// A file or folder has appeared: it was made, or moved here from where it was not watched, perhaps
        /// in the place of another. What a folder contains is reported after it.
        case created(FilePath)
        /// A file has been written or truncated.
        case modified(FilePath)
        /// A file that was open for writing has been closed.
        case closedAfterWriting(FilePath)
        /// Permissions, owner, times, the number of links or extended attributes have changed.
        case attributesChanged(FilePath)
        /// A file or folder has been removed, or moved to where it is not watched.
        case removed(FilePath)
        /// A file or folder has got another name or folder, perhaps in the place of another, which is gone.
        ///
        /// A move back to where the last one began is ``removed(_:)`` and ``created(_:)``: it may be half of an exchange
        /// (renameat2(2)), after which ``created(_:)`` reports what the other path has now.
        case moved(from: FilePath, to: FilePath)
        /// A folder that was given, or the folder of a file that was given, has been removed, moved or
        /// unmounted. The path is the one that was given, and is not watched any more. A file that is removed
        /// or moved is ``removed(_:)`` or ``moved(from:to:)``, and its path is still watched.
        case vanished(FilePath)
        /// Changes may have been missed: the kernel has dropped some, or a tree was too large to be watched in one
        /// call of ``FileWatcher/watch(_:recursively:)``. Everything is being watched again; rescan the files.
        case overflowed
        /// A folder in a tree cannot be watched or read. The others still are, except that a limit of the kernel also
        /// ends the reading of those that were not watched yet.
        case errorOccurred(IOError)
    }

    /// Receives an event.
    public typealias Handler = (FileWatcher, Event) -> Void

    /// The bytes that one pass reads: some two thousand events.
    static let bytesPerPass = 65_536
    /// How long a file that was moved away may be missing before it counts as removed. Both halves of a move
    /// are in the kernel's queue within microseconds, unless its thread is suspended in between.
    private static let movePatience = Duration.milliseconds(5)

    private var handler: Handler?
    private var tree: WatchedFolders?
    private var events: [Event] = []
    /// The number of `events` that have been delivered.
    private var delivered = 0
    /// Set when the watcher leaves a mode: the remaining events stay for the next one.
    private var isInterrupted = false
    private var timer: Timer?

    /// Makes a watcher, which watches nothing yet.
    ///
    /// - Parameter handler: Called with the watcher and each event.
    /// - Throws: ``IOError`` with `Errno.tooManyOpenFiles`, which names `fs.inotify.max_user_instances` if
    ///   that limit is reached, or `Errno.noMemory`.
    public init(handler: @escaping Handler) throws(IOError) {
        let tree = try WatchedFolders()
        let number = tree.inotify.number
        self.tree = consume tree
        self.handler = handler
        super.init(number, for: .readable)
    }

    /// What is watched.
    public override var description: String {
        guard isValid, let (paths, folders) = tree?.counts else { return "file watcher (closed)" }
        return "file watcher: \(paths) paths, \(folders) folders"
    }

    /// The paths that are watched, as they were given, but for needless dots and slashes.
    public var paths: [FilePath] {
        requireLoopThread()
        return tree?.paths ?? []
    }

    /// Watches a file or a folder.
    ///
    /// Reads folders for a few milliseconds. The rest of a large tree is read on the loop, and then
    /// ``Event/overflowed`` is reported: changes in folders that were not watched yet have no event.
    ///
    /// - Parameters:
    ///   - path: A folder, or a file, which need not exist while its folder does. If a folder appears there, that is
    ///     reported, and what is in it is not.
    ///   - recursively: Whether the folders below are watched, too.
    /// - Throws: ``IOError`` with `Errno.noSpace`, which names `fs.inotify.max_user_watches`, if that limit
    ///   is reached; `Errno.noSuchFileOrDirectory`, `Errno.permissionDenied` and other errors of stat(2);
    ///   `Errno.noMemory`;
    ///   `Errno.badFileDescriptor` once the watcher is closed. The path is not watched then, even if it was before.
    public func watch(_ path: FilePath, recursively: Bool = false) throws(IOError) {
        requireLoopThread()
        guard tree != nil else { throw IOError(.watch, "\(path)", .badFileDescriptor) }
        defer { deliverLater() }
        try tree?.watch(path.withoutNeedlessParts, recursively: recursively)
    }

    /// Stops watching a path that was given to ``watch(_:recursively:)``. Changes that were made before may
    /// still be delivered.
    public func unwatch(_ path: FilePath) {
        requireLoopThread()
        tree?.unwatch(path.withoutNeedlessParts)
        deliverLater()
    }

    /// Removes the watcher from its loop for good, and releases its closure and its descriptor. No event is
    /// delivered after this.
    public func close() {
        end()
        release()
    }

    private func release() {
        let handler = handler.take()
        tree = nil
        events = []
        timer?.invalidate()
        timer = nil
        withExtendedLifetime(handler) {}
    }

    // MARK: On the loop's thread

    override var noun: String { "file watcher" }

    override var silence: String { paths.isEmpty ? "it watches no path" : "nothing has changed" }

    override var confirmsLateReadiness: Bool { false }

    override func setInterest(_ interest: Readiness) throws(Errno) {
        try super.setInterest(interest)
        if !isInCallback { deliverLater() }
    }

    override func joined(_ mode: RunLoop.Mode) { deliverLater() }

    override func left(_ mode: RunLoop.Mode) {
        isInterrupted = true
        // It is in the modes that the watcher was in.
        timer?.invalidate()
        timer = nil
        deliverLater()
    }

    override func ended() { release() }

    override func serve(_ readiness: Readiness) {
        isInterrupted = false
        // A pass that delivers what is left reads nothing, so that `events` stays bounded.
        if events.isEmpty { read() }
        isHandled = delivered < events.count
        while !isEnded, !isInterrupted, delivered < events.count {
            delivered += 1
            handler?(self, events[delivered - 1])
        }
        guard !isEnded else { return }
        if delivered == events.count { (events, delivered) = ([], 0) }
        deliverLater()
    }

    private func read() {
        tree?.advance()
        tree?.expireMoves(before: .now - Self.movePatience)
        events = tree?.takeEvents() ?? []
    }

    /// Makes sure that events that the kernel does not announce are delivered.
    private func deliverLater() {
        if !events.isEmpty || tree?.hasWork == true { return markReady() }
        // While the watcher pauses, the second half waits where it is not read.
        guard tree?.moves.isEmpty == false, timer == nil, let loop, !watchedInterest.isEmpty else { return }
        let modes = Array(membership.registrationModes(common: loop.commonModes).members)
        timer = loop.perform(after: Self.movePatience, inModes: modes) { [weak self] in
            self?.timer = nil
            self?.markReady()
        }
    }
}

extension FilePath {
    /// The same path without needless dots and slashes; the current folder is a dot. Two dots behind a symbolic
    /// link are not needless.
    fileprivate var withoutNeedlessParts: FilePath {
        let path = FilePath(root: root, components.filter { $0.kind != .currentDirectory })
        return path.isEmpty ? "." : path
    }
}
