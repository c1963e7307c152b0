import Foundation
import Reactor

/// Reads a file handle's descriptor on the calling thread's loop, some bytes or all of them.
///
/// An observer that is told of nothing keeps it alive: the loop lets go of that at the latest when its thread ends.
final class BackgroundRead: StreamDelegate {
    /// As much as a pipe holds.
    private static let mostBytes = 65_536

    private let request: BackgroundRequest
    private let readsToEnd: Bool
    private let descriptor: DuplicateDescriptor
    private let input: InputStream
    private var bytes = Data()
    private var keeper: RunLoop.Observer?

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
        let keeper = RunLoop.Observer(for: []) { [self] _, _ in withExtendedLifetime(self) {} }
        self.keeper = keeper
        input.delegate = self
        for mode in request.modes {
            RunLoop.current.add(keeper, forMode: mode)
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
            end { request.post(aStream.streamError as? Errno ?? .ioError, bytes: bytes) }
        default: break
        }
    }

    private func read() {
        let some = input.read(upTo: Self.mostBytes)
        bytes.append(contentsOf: some)
        if !readsToEnd, !some.isEmpty { end { request.post([NSFileHandleNotificationDataItem: bytes]) } }
    }

    private func end(_ post: () -> Void = {}) {
        guard let keeper = keeper.take() else { return }
        input.close()
        post()
        keeper.invalidate()
    }
}
