import Reactor
import ReactorFoundation
import ReactorTestSupport

/// An HTTP/1.0 download, written the way Cocoa code writes it.
///
/// `@unchecked Sendable` is correct: mutable state is used on the loop's thread, and read after the operation
/// finishes.
final class Downloader: RunLoopOperation, StreamDelegate, @unchecked Sendable {
    private(set) var body = Data()
    /// Called on the loop's thread when data has arrived.
    private let onProgress: @Sendable (Downloader) -> Void
    private let port: UInt16
    private let path: String
    private var input: InputStream?
    private var output: OutputStream?
    private var request = Data()
    private var head = Data()
    private var hasHead = false
    private var knowsLength = false

    init(
        port: UInt16, path: String, runLoop: RunLoop? = nil,
        onProgress: @escaping @Sendable (Downloader) -> Void = { _ in }
    ) {
        (self.port, self.path, self.onProgress) = (port, path, onProgress)
        super.init(runLoop: runLoop)
    }

    override func operationDidStart() {
        request = Data("GET \(path) HTTP/1.0\r\n\r\n".utf8)
        let pair = Stream.connection(toHost: "127.0.0.1", port: port)
        (input, output) = (pair.input, pair.output)
        for stream in [pair.input, pair.output] as [Stream] {
            stream.delegate = self
            for mode in runLoopModes { stream.schedule(in: .current, forMode: mode) }
            stream.open()
        }
    }

    override func operationWillFinish() {
        input?.close()
        output?.close()
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasSpaceAvailable: write()
        case .hasBytesAvailable: read()
        case .endEncountered: finish(with: hasHead ? .success(()) : .failure(Errno.protocolError))
        case .errorOccurred: finish(with: .failure(aStream.streamError ?? Errno.ioError))
        default: break
        }
    }

    private func write() {
        guard let output, !request.isEmpty else { return }
        let count = request.withUnsafeBytes {
            output.write($0.bindMemory(to: UInt8.self).baseAddress!, maxLength: $0.count)
        }
        request = Data(request.dropFirst(max(0, count)))
    }

    private func read() {
        let bytes = input?.read(upTo: 4096) ?? []
        if hasHead { body += bytes } else { readHead(bytes) }
        if knowsLength { progress.completedUnitCount = Int64(body.count) }
        onProgress(self)
    }

    private func readHead(_ bytes: [UInt8]) {
        head += bytes
        guard let end = head.range(of: Data("\r\n\r\n".utf8)) else { return }
        hasHead = true
        body = Data(head[end.upperBound...])
        let lines = String(decoding: head[..<end.lowerBound], as: UTF8.self).components(separatedBy: "\r\n")
        let length = lines.first { $0.hasPrefix("Content-Length: ") }?.dropFirst(16)
        // Foundation traps if the total unit count is zero.
        guard let count = length.flatMap({ Int64($0) }), count > 0 else { return }
        progress.totalUnitCount = count
        knowsLength = true
    }
}

/// A server on its own thread: `/count` returns that many bytes, `/endless` returns bytes until the client
/// closes.
final class FileServer: Sendable {
    let port: UInt16
    private let thread: RunLoopThread

    init() throws {
        thread = try RunLoopThread(name: "server")
        port = thread.runLoop.performAndWait {
            let listener = try? Listener(.ipv4Loopback(port: 0)) { _, connection in
                Response(connection).begin()
            }
            if let listener { try? RunLoop.current.add(listener, forMode: .common) }
            return listener?.localAddress.port ?? 0
        }
    }

    func stop() { thread.stop() }

    /// The response to one client. An observer in the loop retains it until it is sent, or the client closes.
    private final class Response: StreamDelegate {
        private let connection: Listener.Connection
        private var bytes: [UInt8] = []
        private var isEndless = false
        private var retainingObserver: RunLoop.Observer?

        init(_ connection: Listener.Connection) { self.connection = connection }

        func begin() {
            let observer = RunLoop.Observer(for: []) { [self] _, _ in withExtendedLifetime(self) {} }
            retainingObserver = observer
            RunLoop.current.add(observer, forMode: .common)
            for stream in [connection.input, connection.output] as [Stream] {
                stream.delegate = self
                stream.schedule(in: .current, forMode: .common)
                stream.open()
            }
        }

        func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
            switch eventCode {
            case .hasBytesAvailable: read()
            case .hasSpaceAvailable: write()
            case .endEncountered, .errorOccurred: end()
            default: break
            }
        }

        private func read() {
            let words = String(decoding: connection.input.read(upTo: 4096), as: UTF8.self).split(
                separator: " ")
            guard words.count > 1 else { return }
            let count = Int(words[1].dropFirst())
            isEndless = count == nil
            let length = count.map { "Content-Length: \($0)\r\n" } ?? ""
            bytes = Array("HTTP/1.0 200 OK\r\n\(length)\r\n".utf8) + [UInt8](repeating: 7, count: count ?? 0)
            write()
        }

        private func write() {
            if isEndless, bytes.isEmpty { bytes = [UInt8](repeating: 7, count: 65_536) }
            guard !bytes.isEmpty else { return }
            let count = bytes.withUnsafeBufferPointer {
                connection.output.write($0.baseAddress!, maxLength: $0.count)
            }
            guard count >= 0 else { return end() }
            bytes.removeFirst(count)
            if bytes.isEmpty, !isEndless { end() }
        }

        private func end() {
            connection.input.close()
            connection.output.close()
            retainingObserver.take()?.invalidate()
        }
    }
}
