public import Foundation
public import Reactor

// Foundation on Linux posts these notifications through its own notification queue, which needs its own run
// loop. These methods post from Reactor's run loops, and replace Foundation's where this module is imported.
//
// Each method has three overloads so that calls resolve to this module's: the one without modes shadows
// Foundation's, and for a literal list of modes a non-optional parameter is the better match.

extension FileHandle {
    /// Waits for data, reads up to 65,536 bytes, and posts `FileHandle.readCompletionNotification` once.
    ///
    /// The notification's `userInfo` has the bytes as `Data` under the key
    /// `NSFileHandleNotificationDataItem`; the data is empty at the end of the file. If the read fails, the
    /// data is empty too, and `userInfo` has the errno value, as an `Int`, under the key
    /// `"NSFileHandleError"`.
    ///
    /// The notification is posted from the calling thread's run loop, which must run in one of `modes`, as on
    /// Apple's systems; Foundation on Linux supports only the main thread's loop. Several requests may be
    /// pending: in each mode they complete in the order in which they were made, each with what is available
    /// when its turn comes. A request in no mode is dropped. Closing the handle cancels the
    /// notification, but the file stays open until the request completes, because a request watches a
    /// duplicate of the descriptor. When the thread ends, its requests end with it.
    public func readInBackgroundAndNotify(forModes modes: [RunLoop.Mode]) {
        BackgroundReads.begin(self, toEnd: false, modes)
    }

    /// Like ``readInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``, where nil means the default mode.
    public func readInBackgroundAndNotify(forModes modes: [RunLoop.Mode]?) {
        readInBackgroundAndNotify(forModes: modes ?? [.default])
    }

    /// Like ``readInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``, in the default mode.
    public func readInBackgroundAndNotify() {
        readInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }

    /// Reads to the end of the file and posts `NSFileHandleReadToEndOfFileCompletion` once, with all the
    /// bytes. If a read fails, the notification has the bytes read before the error.
    ///
    /// Otherwise like ``readInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``.
    public func readToEndOfFileInBackgroundAndNotify(forModes modes: [RunLoop.Mode]) {
        BackgroundReads.begin(self, toEnd: true, modes)
    }

    /// Like ``readToEndOfFileInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``, where nil means the default
    /// mode.
    public func readToEndOfFileInBackgroundAndNotify(forModes modes: [RunLoop.Mode]?) {
        readToEndOfFileInBackgroundAndNotify(forModes: modes ?? [.default])
    }

    /// Like ``readToEndOfFileInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``, in the default mode.
    public func readToEndOfFileInBackgroundAndNotify() {
        readToEndOfFileInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }

    /// Accepts a connection on a listening socket and posts `NSFileHandleConnectionAccepted` once.
    ///
    /// The notification's `userInfo` has the connection under the key
    /// `NSFileHandleNotificationFileHandleItem`: a `FileHandle` that closes its socket when it is released.
    /// (Foundation on Linux omits it.) The listening socket becomes non-blocking.
    ///
    /// Otherwise like ``readInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``. New servers should use
    /// `Listener`.
    public func acceptConnectionInBackgroundAndNotify(forModes modes: [RunLoop.Mode]) {
        BackgroundWait.begin(self, accepts: true, modes)
    }

    /// Like ``acceptConnectionInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``, where nil means the
    /// default mode.
    public func acceptConnectionInBackgroundAndNotify(forModes modes: [RunLoop.Mode]?) {
        acceptConnectionInBackgroundAndNotify(forModes: modes ?? [.default])
    }

    /// Like ``acceptConnectionInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``, in the default mode.
    public func acceptConnectionInBackgroundAndNotify() {
        acceptConnectionInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }

    /// Waits for data or the end of the file and posts `NSFileHandleDataAvailable` once, without reading.
    ///
    /// Otherwise like ``readInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``.
    public func waitForDataInBackgroundAndNotify(forModes modes: [RunLoop.Mode]) {
        BackgroundWait.begin(self, accepts: false, modes)
    }

    /// Like ``waitForDataInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``, where nil means the default
    /// mode.
    public func waitForDataInBackgroundAndNotify(forModes modes: [RunLoop.Mode]?) {
        waitForDataInBackgroundAndNotify(forModes: modes ?? [.default])
    }

    /// Like ``waitForDataInBackgroundAndNotify(forModes:)-([RunLoop.Mode])``, in the default mode.
    public func waitForDataInBackgroundAndNotify() {
        waitForDataInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }
}
