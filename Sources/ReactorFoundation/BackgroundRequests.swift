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
        if handle === FileHandle.nullDevice {
            return DuplicateDescriptor(try SystemCall.open("/dev/null", O_RDWR))
        }
        return DuplicateDescriptor(try SystemCall.duplicate(handle.fileDescriptor))
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
    private let owned: OwnedDescriptor
    var number: CInt { owned.number }

    init(_ number: CInt) { owned = OwnedDescriptor(number) }
}

// MARK: - Reading

/// The background reads of one file handle on the calling thread's loop, in the order of the requests.
///
/// They share one stream. Several streams would read the same part of a regular file, and would all get an
/// event for bytes that only one of them can read. The bytes go to the first request in the running mode.
///
/// A stream does not retain its delegate. Each request has an observer of no activities, which does until the
/// request has completed; the loop releases the observers at the latest when its thread ends.
final class BackgroundReads: StreamDelegate {
    /// The default capacity of a pipe (pipe(7)).
    private static let chunkSize = 65_536

    private struct PendingRead {
        let request: BackgroundRequest
        let readsToEnd: Bool
        let observer: RunLoop.Observer
        var bytes = Data()
    }

    private let handle: FileHandle
    private let descriptor: DuplicateDescriptor
    private var pending: [PendingRead] = []
    /// Scheduled in all modes of the pending reads; nil when there are none.
    private var input: InputStream?

    static func begin(_ handle: FileHandle, toEnd: Bool, _ modes: [RunLoop.Mode]) {
        let name = toEnd ? .NSFileHandleReadToEndOfFileCompletion : FileHandle.readCompletionNotification
        guard !modes.isEmpty else { return }
        let request = BackgroundRequest(handle: handle, name: name, modes: modes)
        do throws(Errno) {
            let reads = if let reads = reads(of: handle) { reads } else { try BackgroundReads(request) }
            reads.append(request, toEnd: toEnd)
        } catch {
            request.postLater(error, bytes: Data())
        }
    }

    private init(_ request: BackgroundRequest) throws(Errno) {
        handle = request.handle
        descriptor = try request.duplicate()
    }

    private func append(_ request: BackgroundRequest, toEnd: Bool) {
        let observer = RunLoop.Observer(for: []) { [self] _, _ in withExtendedLifetime(self) {} }
        for mode in request.modes { RunLoop.current.add(observer, forMode: mode) }
        pending.append(PendingRead(request: request, readsToEnd: toEnd, observer: observer))
        guard let input else { return openStream() }
        for mode in request.modes { input.schedule(in: .current, forMode: mode) }
    }

    /// Opens a stream, which begins at the offset that the last one has left.
    private func openStream() {
        Self.setReads(self, of: handle)
        let input = InputStream(descriptor: FileDescriptor(rawValue: descriptor.number))
        self.input = input
        input.delegate = self
        for mode in pending.flatMap(\.request.modes) { input.schedule(in: .current, forMode: mode) }
        input.open()
    }

    private func closeStream() {
        input.take()?.close()
        Self.setReads(nil, of: handle)
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        guard pending.first?.request.isOpen == true else { return dropAll() }
        guard let index = indexOfNext() else { return }
        switch eventCode {
        case .hasBytesAvailable: read(for: index)
        case .endEncountered:
            complete(index) { $0.request.post([NSFileHandleNotificationDataItem: $0.bytes]) }
        case .errorOccurred:
            let error = (aStream.streamError as? IOError)?.errno ?? .ioError
            complete(index) { $0.request.post(error, bytes: $0.bytes) }
        default: break
        }
    }

    /// The first read that is pending in the running mode.
    private func indexOfNext() -> Int? {
        let loop = RunLoop.current
        guard let mode = loop.currentMode else { return nil }
        return pending.firstIndex { loop.contains($0.observer, forMode: mode) }
    }

    /// Other users of the file may have taken the bytes that the event was for.
    private func read(for index: Int) {
        guard let chunk = input?.readIfReady(upTo: Self.chunkSize), !chunk.isEmpty else { return }
        pending[index].bytes.append(contentsOf: chunk)
        guard !pending[index].readsToEnd else { return }
        complete(index) { $0.request.post([NSFileHandleNotificationDataItem: $0.bytes]) }
    }

    /// Ends the stream, which sets the file's offset behind the bytes that were read, and opens another for
    /// the reads that are left, before it posts: the notification's observers may run the loop.
    private func complete(_ index: Int, _ post: (PendingRead) -> Void) {
        let read = pending.remove(at: index)
        closeStream()
        if !pending.isEmpty { openStream() }
        post(read)
        read.observer.invalidate()
    }

    private func dropAll() {
        closeStream()
        let dropped = pending
        pending = []
        for read in dropped { read.observer.invalidate() }
    }
}

extension BackgroundReads {
    /// The objects of the calling thread's file handles that have pending reads.
    private final class Registry {
        struct Entry { weak var reads: BackgroundReads? }
        var entries: [ObjectIdentifier: Entry] = [:]

        static var current: Registry {
            let key = "ReactorFoundation.BackgroundReads"
            let values = Thread.current.threadDictionary
            if let registry = values[key] as? Registry { return registry }
            let registry = Registry()
            values[key] = registry
            return registry
        }
    }

    private static func reads(of handle: FileHandle) -> BackgroundReads? {
        Registry.current.entries[ObjectIdentifier(handle)]?.reads
    }

    private static func setReads(_ reads: BackgroundReads?, of handle: FileHandle) {
        Registry.current.entries[ObjectIdentifier(handle)] = reads.map { Registry.Entry(reads: $0) }
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
        guard !modes.isEmpty else { return }
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
            for mode in request.modes { try RunLoop.current.register(source, forMode: mode) }
        } catch {
            source.cancel()
            throw error
        }
    }

    private static func descriptorBecameReadable(
        _ request: BackgroundRequest, _ source: DescriptorSource, _ descriptor: DuplicateDescriptor,
        _ accepts: Bool
    ) {
        guard request.isOpen else { return source.cancel() }
        guard accepts else {
            // Another request's notification in the same pass may have made its observer read the data.
            if (try? SystemCall.poll(descriptor.number, for: POLLIN)) == 0 { return }
            source.cancel()
            return request.post()
        }
        do throws(Errno) {
            guard case .accepted(let connection, _) = try PendingConnection(of: descriptor.number) else {
                return
            }
            source.cancel()
            _ = fcntl(connection.rawValue, F_SETFL, 0)  // the reads and writes of a FileHandle block
            let handle = FileHandle(fileDescriptor: connection.rawValue, closeOnDealloc: true)
            request.post([NSFileHandleNotificationFileHandleItem: handle])
        } catch {
            source.cancel()
            request.post(error)
        }
    }
}
