import CReactorLinux
import Foundation
import Glibc
import Reactor

/// Waits until a file handle's descriptor can be read, or a connection accepted, on the calling thread's loop.
///
/// The descriptor belongs to the closure of the source, which the loop keeps until the source is cancelled or the thread
/// ends.
enum BackgroundWatch {
    static func begin(_ handle: FileHandle, accepts: Bool, _ modes: [RunLoop.Mode]) {
        let name = accepts ? Notification.Name.NSFileHandleConnectionAccepted : .NSFileHandleDataAvailable
        let request = BackgroundRequest(handle: handle, name: name, modes: modes)
        do throws(Errno) {
            let descriptor = try request.duplicate()
            // Somebody else may be quicker to accept what both are told of.
            if accepts { _ = fcntl(descriptor.number, F_SETFL, O_NONBLOCK) }
            try watch(request, descriptor, accepts)
        } catch {
            // A regular file, which epoll refuses, can always be read.
            request.postLater(error == .notPermitted && !accepts ? nil : error)
        }
    }

    private static func watch(
        _ request: BackgroundRequest, _ descriptor: DuplicateDescriptor, _ accepts: Bool
    ) throws(Errno) {
        let source = DescriptorSource(FileDescriptor(rawValue: descriptor.number), for: .readable) {
            source, _ in
            answer(request, source, descriptor, accepts)
        }
        do throws(Errno) {
            for mode in request.modes { try RunLoop.current.add(source, forMode: mode) }
        } catch {
            source.cancel()
            throw error
        }
    }

    private static func answer(
        _ request: BackgroundRequest, _ source: DescriptorSource, _ descriptor: DuplicateDescriptor,
        _ accepts: Bool
    ) {
        guard accepts, request.isOpen else {
            source.cancel()
            if request.isOpen { request.post() }
            return
        }
        let connection = reactor_accept(descriptor.number, nil, nil)
        let code = Errno(rawValue: errno)
        if connection < 0, [.resourceTemporarilyUnavailable, .interrupted, .connectionAbort].contains(code) {
            return
        }
        source.cancel()
        guard connection >= 0 else { return request.post(code) }
        _ = fcntl(connection, F_SETFL, 0)  // those who read file handles expect to wait
        let handle = FileHandle(fileDescriptor: connection, closeOnDealloc: true)
        request.post([NSFileHandleNotificationFileHandleItem: handle])
    }
}
