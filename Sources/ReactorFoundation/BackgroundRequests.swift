import CReactorLinux
import Foundation
import Glibc
import Reactor

/// A file handle's background request: the notification to post, and the modes of the requesting thread's
/// loop.
struct BackgroundRequest {
    let handle: FileHandle
    let name: Notification.Name
    let modes: [RunLoop.Mode]

    /// Duplicates the handle's descriptor, so that closing the handle does not close the descriptor that the
    /// loop watches.
    func duplicate() throws(Errno) -> DuplicateDescriptor {
        let number =
            handle === FileHandle.nullDevice
            ? unsafe open("/dev/null", O_RDWR | O_CLOEXEC) : fcntl(handle.fileDescriptor, F_DUPFD_CLOEXEC, 0)
        let code = errno
        guard number >= 0 else { throw Errno(rawValue: code) }
        return DuplicateDescriptor(number)
    }

    /// Whether the handle is still open. A closed handle posts nothing.
    var isOpen: Bool { handle.fileDescriptor >= 0 || handle === FileHandle.nullDevice }

    func post(_ userInfo: [String: Any] = [:]) {
        NotificationCenter.default.post(name: name, object: handle, userInfo: userInfo)
    }

    /// Posts that the request failed; for a read, with the `bytes` read before the error.
    func post(_ error: Errno, bytes: Data? = nil) {
        var userInfo: [String: Any] = ["NSFileHandleError": Int(error.rawValue)]
        userInfo[NSFileHandleNotificationDataItem] = bytes
        post(userInfo)
    }

    /// Posts from the loop in one of the modes, never inside this call.
    func postLater(_ error: Errno?, bytes: Data? = nil) {
        RunLoop.current.perform(after: .zero, inModes: modes) {
            if let error { post(error, bytes: bytes) } else { post() }
        }
    }
}

/// A descriptor that is closed when its last reference is released.
final class DuplicateDescriptor {
    let number: CInt

    init(_ number: CInt) { self.number = number }

    deinit { _ = close(number) }
}

// MARK: - Reading

/// Reads a file handle's descriptor on the calling thread's loop, once or to the end.
///
/// A stream does not retain its delegate. An observer of no activities does, until the read ends; the loop
/// releases the observer at the latest when its thread ends.
final class BackgroundRead: StreamDelegate {
    /// The default capacity of a pipe (pipe(7)).
    private static let chunkSize = 65_536

    private let request: BackgroundRequest
    private let readsToEnd: Bool
    private let descriptor: DuplicateDescriptor
    private let input: InputStream
    private var bytes = Data()
    private var retainingObserver: RunLoop.Observer?

    static func begin(_ handle: FileHandle, toEnd: Bool, _ modes: [RunLoop.Mode]) {
        let name = toEnd ? .NSFileHandleReadToEndOfFileCompletion : FileHandle.readCompletionNotification
        let request = BackgroundRequest(handle: handle, name: name, modes: modes)
        do throws(Errno) {
            BackgroundRead(request, try request.duplicate(), toEnd: toEnd).begin()
        } catch {
            request.postLater(error, bytes: Data())
        }
    }

    private init(_ request: BackgroundRequest, _ descriptor: DuplicateDescriptor, toEnd: Bool) {
        self.request = request
        readsToEnd = toEnd
        self.descriptor = descriptor
        input = InputStream(descriptor: FileDescriptor(rawValue: descriptor.number))
    }

    private func begin() {
        let observer = RunLoop.Observer(for: []) { [self] _, _ in withExtendedLifetime(self) {} }
        retainingObserver = observer
        input.delegate = self
        for mode in request.modes {
            RunLoop.current.add(observer, forMode: mode)
            input.schedule(in: .current, forMode: mode)
        }
        input.open()
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        guard request.isOpen else { return end() }
        switch eventCode {
        case .hasBytesAvailable: read()
        case .endEncountered: end { request.post([NSFileHandleNotificationDataItem: bytes]) }
        case .errorOccurred:
            end { request.post((aStream.streamError as? IOError)?.errno ?? .ioError, bytes: bytes) }
        default: break
        }
    }

    private func read() {
        let chunk = input.read(upTo: Self.chunkSize)
        bytes.append(contentsOf: chunk)
        if !readsToEnd, !chunk.isEmpty { end { request.post([NSFileHandleNotificationDataItem: bytes]) } }
    }

    private func end(_ post: () -> Void = {}) {
        guard let observer = retainingObserver.take() else { return }
        input.close()
        post()
        observer.invalidate()
    }
}

// MARK: - Waiting and accepting

/// Waits on the calling thread's loop until a file handle's descriptor is readable, or accepts a connection
/// on it.
///
/// The source's handler owns the descriptor; the loop releases it when the source is cancelled or the thread
/// ends.
enum BackgroundWait {
    static func begin(_ handle: FileHandle, accepts: Bool, _ modes: [RunLoop.Mode]) {
        let name = accepts ? Notification.Name.NSFileHandleConnectionAccepted : .NSFileHandleDataAvailable
        let request = BackgroundRequest(handle: handle, name: name, modes: modes)
        do throws(Errno) {
            let descriptor = try request.duplicate()
            // Another process or thread may accept the connection first: accept(2) must not block then.
            if accepts { _ = fcntl(descriptor.number, F_SETFL, O_NONBLOCK) }
            try watch(request, descriptor, accepts)
        } catch {
            // epoll refuses regular files, which are always readable.
            request.postLater(error == .notPermitted && !accepts ? nil : error)
        }
    }

    private static func watch(
        _ request: BackgroundRequest, _ descriptor: DuplicateDescriptor, _ accepts: Bool
    ) throws(Errno) {
        let source = DescriptorSource(FileDescriptor(rawValue: descriptor.number), for: .readable) {
            source, _ in
            descriptorBecameReadable(request, source, descriptor, accepts)
        }
        do throws(Errno) {
            for mode in request.modes { try RunLoop.current.add(source, forMode: mode) }
        } catch {
            source.cancel()
            throw error
        }
    }

    private static func descriptorBecameReadable(
        _ request: BackgroundRequest, _ source: DescriptorSource, _ descriptor: DuplicateDescriptor,
        _ accepts: Bool
    ) {
        guard accepts, request.isOpen else {
            source.cancel()
            if request.isOpen { request.post() }
            return
        }
        let connection = reactor_accept(descriptor.number).descriptor
        let code = Errno(rawValue: errno)
        if connection < 0, [.resourceTemporarilyUnavailable, .interrupted, .connectionAbort].contains(code) {
            return
        }
        source.cancel()
        guard connection >= 0 else { return request.post(code) }
        _ = fcntl(connection, F_SETFL, 0)  // the reads and writes of a FileHandle block
        let handle = FileHandle(fileDescriptor: connection, closeOnDealloc: true)
        request.post([NSFileHandleNotificationFileHandleItem: handle])
    }
}
