public import Foundation
public import Reactor

// Foundation on Linux hands these notifications to its own notification queue, which waits for its own run loop, which
// nobody runs here. These methods take their place where this module is imported.
//
// Each comes in three forms so that calls mean these and not Foundation's: without modes it shadows, and a list of
// modes that is not optional is the better match for one that is written down.

extension FileHandle {
    /// Reads what there is, up to 65,536 bytes, and posts `FileHandle.readCompletionNotification` once.
    ///
    /// The notification's `userInfo` has the bytes as `Data` for the key `NSFileHandleNotificationDataItem`, empty
    /// at the end of the file and if reading failed; then it has the `errno`, too, as an `Int` for the key
    /// `"NSFileHandleError"`.
    ///
    /// It is posted on the calling thread's run loop, which has to run in one of `modes`, as on Apple's systems: not
    /// only on the main thread's, as by Foundation on Linux. Several requests may be under way; each gets what it
    /// finds. A handle that is closed meanwhile posts nothing any more, but its file stays open until the request
    /// has been met: a request watches a duplicate of the descriptor. When the thread ends, so do its requests.
    public func readInBackgroundAndNotify(forModes modes: [RunLoop.Mode]) {
        BackgroundRead.begin(self, toEnd: false, modes)
    }

    /// As ``readInBackgroundAndNotify(forModes:)-(Array<Mode>)``, where nil means the default mode.
    public func readInBackgroundAndNotify(forModes modes: [RunLoop.Mode]?) {
        readInBackgroundAndNotify(forModes: modes ?? [.default])
    }

    /// As ``readInBackgroundAndNotify(forModes:)-(Array<Mode>)``, in the default mode.
    public func readInBackgroundAndNotify() {
        readInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }

    /// Reads to the end of the file, and posts `NSFileHandleReadToEndOfFileCompletion` once, with all the bytes; if
    /// reading failed, with those that came before.
    ///
    /// In all else as ``readInBackgroundAndNotify(forModes:)-(Array<Mode>)``.
    public func readToEndOfFileInBackgroundAndNotify(forModes modes: [RunLoop.Mode]) {
        BackgroundRead.begin(self, toEnd: true, modes)
    }

    /// As ``readToEndOfFileInBackgroundAndNotify(forModes:)-(Array<Mode>)``, where nil means the default mode.
    public func readToEndOfFileInBackgroundAndNotify(forModes modes: [RunLoop.Mode]?) {
        readToEndOfFileInBackgroundAndNotify(forModes: modes ?? [.default])
    }

    /// As ``readToEndOfFileInBackgroundAndNotify(forModes:)-(Array<Mode>)``, in the default mode.
    public func readToEndOfFileInBackgroundAndNotify() {
        readToEndOfFileInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }

    /// Accepts a connection at a socket that listens, and posts `NSFileHandleConnectionAccepted` once.
    ///
    /// The notification's `userInfo` has the connection, a `FileHandle` that closes its socket when it is let go of,
    /// for the key `NSFileHandleNotificationFileHandleItem` (Foundation on Linux leaves it out). The socket that listens
    /// is made non-blocking.
    ///
    /// In all else as ``readInBackgroundAndNotify(forModes:)-(Array<Mode>)``. A server is better served by a
    /// `Listener`.
    public func acceptConnectionInBackgroundAndNotify(forModes modes: [RunLoop.Mode]) {
        BackgroundWatch.begin(self, accepts: true, modes)
    }

    /// As ``acceptConnectionInBackgroundAndNotify(forModes:)-(Array<Mode>)``, where nil means the default mode.
    public func acceptConnectionInBackgroundAndNotify(forModes modes: [RunLoop.Mode]?) {
        acceptConnectionInBackgroundAndNotify(forModes: modes ?? [.default])
    }

    /// As ``acceptConnectionInBackgroundAndNotify(forModes:)-(Array<Mode>)``, in the default mode.
    public func acceptConnectionInBackgroundAndNotify() {
        acceptConnectionInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }

    /// Waits until something can be read, or the end has come, and posts `NSFileHandleDataAvailable` once.
    ///
    /// In all else as ``readInBackgroundAndNotify(forModes:)-(Array<Mode>)``.
    public func waitForDataInBackgroundAndNotify(forModes modes: [RunLoop.Mode]) {
        BackgroundWatch.begin(self, accepts: false, modes)
    }

    /// As ``waitForDataInBackgroundAndNotify(forModes:)-(Array<Mode>)``, where nil means the default mode.
    public func waitForDataInBackgroundAndNotify(forModes modes: [RunLoop.Mode]?) {
        waitForDataInBackgroundAndNotify(forModes: modes ?? [.default])
    }

    /// As ``waitForDataInBackgroundAndNotify(forModes:)-(Array<Mode>)``, in the default mode.
    public func waitForDataInBackgroundAndNotify() {
        waitForDataInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }
}
