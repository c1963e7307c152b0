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
    func descriptor() throws(Errno) -> FileDescriptor {
        let number =
            handle === FileHandle.nullDevice
            ? unsafe open("/dev/null", O_RDWR | O_CLOEXEC) : fcntl(handle.fileDescriptor, F_DUPFD_CLOEXEC, 0)
        let code = errno
        guard number >= 0 else { throw Errno(rawValue: code) }
        return FileDescriptor(rawValue: number)
    }

    /// Whether somebody may still wait for the answer.
    var isOpen: Bool { handle.fileDescriptor >= 0 || handle === FileHandle.nullDevice }

    func post(_ userInfo: [String: Any] = [:]) {
        NotificationCenter.default.post(name: name, object: handle, userInfo: userInfo)
    }

    func post(_ error: Errno) { post(["NSFileHandleError": Int(error.rawValue)]) }

    /// Posts in one of the modes, never at once.
    func postLater(_ error: Errno?) {
        RunLoop.current.perform(after: .zero, inModes: modes) {
            if let error { post(error) } else { post() }
        }
    }
}

/// Waits until a descriptor can be read, or a connection accepted.
enum BackgroundWatch {
    static func begin(_ handle: FileHandle, accepts: Bool, _ modes: [RunLoop.Mode]) {
        let name = accepts ? Notification.Name.NSFileHandleConnectionAccepted : .NSFileHandleDataAvailable
        let request = BackgroundRequest(handle: handle, name: name, modes: modes)
        do throws(Errno) {
            let descriptor = try request.descriptor()
            let source = DescriptorSource(descriptor, for: .readable) { source, _ in
                answer(request, source, accepts)
            }
            // Somebody else may be quicker to accept what both are told of.
            if accepts { _ = fcntl(descriptor.rawValue, F_SETFL, O_NONBLOCK) }
            do throws(Errno) {
                for mode in modes { try RunLoop.current.add(source, forMode: mode) }
            } catch {
                source.cancel()
                try? descriptor.close()
                throw error
            }
        } catch {
            // A regular file, which epoll refuses, can always be read.
            request.postLater(error == .notPermitted && !accepts ? nil : error)
        }
    }

    private static func answer(_ request: BackgroundRequest, _ source: DescriptorSource, _ accepts: Bool) {
        guard accepts, request.isOpen else {
            end(source)
            if request.isOpen { request.post() }
            return
        }
        let connection = reactor_accept(source.descriptor.rawValue, nil, nil)
        let code = Errno(rawValue: errno)
        let isGone = [.resourceTemporarilyUnavailable, .wouldBlock, .interrupted, .connectionAbort].contains(
            code)
        if connection < 0, isGone { return }
        end(source)
        guard connection >= 0 else { return request.post(code) }
        _ = fcntl(connection, F_SETFL, 0)  // those who read file handles expect to wait
        let handle = FileHandle(fileDescriptor: connection, closeOnDealloc: true)
        request.post([NSFileHandleNotificationFileHandleItem: handle])
    }

    private static func end(_ source: DescriptorSource) {
        let descriptor = source.descriptor
        source.cancel()
        try? descriptor.close()
    }
}
