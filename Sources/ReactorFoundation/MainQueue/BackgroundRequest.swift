import CReactorLinux
import Foundation
import Glibc
import Reactor

/// What a file handle has been asked for, and on which thread's loop, in which modes, it is to be told.
struct BackgroundRequest {
    let handle: FileHandle
    let name: Notification.Name
    let modes: [RunLoop.Mode]

    /// A duplicate of the handle's descriptor, which stays what it is when the handle is closed.
    func duplicate() throws(Errno) -> DuplicateDescriptor {
        let number =
            handle === FileHandle.nullDevice
            ? unsafe open("/dev/null", O_RDWR | O_CLOEXEC) : fcntl(handle.fileDescriptor, F_DUPFD_CLOEXEC, 0)
        let code = errno
        guard number >= 0 else { throw Errno(rawValue: code) }
        return DuplicateDescriptor(number)
    }

    /// Whether somebody may still wait for the answer.
    var isOpen: Bool { handle.fileDescriptor >= 0 || handle === FileHandle.nullDevice }

    func post(_ userInfo: [String: Any] = [:]) {
        NotificationCenter.default.post(name: name, object: handle, userInfo: userInfo)
    }

    /// Posts that the request has failed; for a reading, with the `bytes` that came before.
    func post(_ error: Errno, bytes: Data? = nil) {
        var userInfo: [String: Any] = ["NSFileHandleError": Int(error.rawValue)]
        userInfo[NSFileHandleNotificationDataItem] = bytes
        post(userInfo)
    }

    /// Posts in one of the modes, never at once.
    func postLater(_ error: Errno?, bytes: Data? = nil) {
        RunLoop.current.perform(after: .zero, inModes: modes) {
            if let error { post(error, bytes: bytes) } else { post() }
        }
    }
}

/// A descriptor that is closed with its last owner.
final class DuplicateDescriptor {
    let number: CInt

    init(_ number: CInt) { self.number = number }

    deinit { _ = close(number) }
}
