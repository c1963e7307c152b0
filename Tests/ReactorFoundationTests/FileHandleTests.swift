import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// The kinds of background requests.
private enum Request: CaseIterable {
    case read, readToEnd, wait, accept

    var name: Notification.Name {
        switch self {
        case .read: FileHandle.readCompletionNotification
        case .readToEnd: .NSFileHandleReadToEndOfFileCompletion
        case .wait: .NSFileHandleDataAvailable
        case .accept: .NSFileHandleConnectionAccepted
        }
    }

    func callAsFunction(_ handle: FileHandle, in modes: [RunLoop.Mode]? = nil) {
        switch self {
        case .read: handle.readInBackgroundAndNotify(forModes: modes)
        case .readToEnd: handle.readToEndOfFileInBackgroundAndNotify(forModes: modes)
        case .wait: handle.waitForDataInBackgroundAndNotify(forModes: modes)
        case .accept: handle.acceptConnectionInBackgroundAndNotify(forModes: modes)
        }
    }
}

/// The user info of the notifications about file handles that are posted on the calling thread. Each stops the loop at the
/// end of the pass in which it is posted.
private final class Log {
    private(set) var all: [[AnyHashable: Any]] = []
    private var tokens: [any NSObjectProtocol] = []

    init(_ request: Request? = nil, _ handles: FileHandle..., onPost: @escaping () -> Void = {}) {
        // Used only on this thread.
        nonisolated(unsafe) weak let log = self
        nonisolated(unsafe) let onPost = onPost
        tokens = handles.map { handle in
            NotificationCenter.default.addObserver(forName: request?.name, object: handle, queue: nil) {
                log?.all.append($0.userInfo ?? [:])
                onPost()
                RunLoop.current.stop()
            }
        }
    }

    deinit { for token in tokens { NotificationCenter.default.removeObserver(token) } }

    var data: [Data?] { all.map { $0[NSFileHandleNotificationDataItem] as? Data } }

    var texts: [String?] { data.map { $0.map { String(decoding: $0, as: UTF8.self) } } }

    /// Runs the loop until `count` notifications have been posted in all.
    func wait(_ count: Int = 1) { while all.count < count { RunLoop.current.run(in: .default) } }
}

/// The connected ends of a pipe or of a socket pair.
private func connectedHandles(isSocket: Bool = false) throws -> (reader: FileHandle, writer: FileHandle) {
    guard isSocket else {
        let pipe = Pipe()
        return (pipe.fileHandleForReading, pipe.fileHandleForWriting)
    }
    let numbers = try socketPair()
    return (
        FileHandle(fileDescriptor: numbers.0, closeOnDealloc: true),
        FileHandle(fileDescriptor: numbers.1, closeOnDealloc: true)
    )
}

@Suite(.runLoop) struct FileHandleTests {
    @Test func `reading waits for data, and returns what is available, and no data at the end`() throws {
        let (reader, writer) = try connectedHandles()
        let log = Log(.read, reader)
        reader.readInBackgroundAndNotify()
        Timer.scheduled(after: .milliseconds(1)) { _ in writer.write(Data("late".utf8)) }
        log.wait()
        writer.closeFile()
        reader.readInBackgroundAndNotify()
        log.wait(2)
        #expect(log.texts == ["late", ""])
    }

    @Test func `reading to the end returns all data`() throws {
        let (reader, writer) = try connectedHandles()
        let (log, all) = (Log(.readToEnd, reader), Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0) }))
        let thread = try JoinableThread {
            writer.write(all)
            writer.closeFile()
        }
        reader.readToEndOfFileInBackgroundAndNotify()
        log.wait()
        #expect(log.data == [all])
        thread.join()
    }

    @Test func `waiting for data does not consume it`() throws {
        let (reader, writer) = try connectedHandles()
        let log = Log(.wait, reader)
        reader.waitForDataInBackgroundAndNotify()
        Timer.scheduled(after: .milliseconds(1)) { _ in writer.write(Data("x".utf8)) }
        log.wait()
        #expect(log.all[0].isEmpty && reader.availableData == Data("x".utf8))
    }

    @Test func `accepting returns a connected file handle`() throws {
        let peer = try SocketPeer.listening()
        let listener = FileHandle(fileDescriptor: peer.number, closeOnDealloc: false)
        let (log, client) = (Log(.accept, listener), try SocketPeer(connectedTo: peer.localAddress))
        listener.acceptConnectionInBackgroundAndNotify()
        log.wait()
        let connection = try #require(log.all[0][NSFileHandleNotificationFileHandleItem] as? FileHandle)
        client.send(Array("hello".utf8))
        #expect(connection.readData(ofLength: 5) == Data("hello".utf8))
    }

    @Test func `a regular file is read from its offset, and pending reads return consecutive parts`() throws {
        let content = (0..<20_000).map { "\($0) " }.joined()
        let file = try TemporaryFile("skipped" + content)
        let handle = try #require(FileHandle(forReadingAtPath: file.path.string))
        #expect(handle.readData(ofLength: 7) == Data("skipped".utf8))
        let (available, log) = (Log(.wait, handle), Log(.read, handle))
        handle.waitForDataInBackgroundAndNotify()
        available.wait()
        for _ in 0..<3 { handle.readInBackgroundAndNotify() }
        log.wait(3)
        #expect(log.texts.compactMap { $0 }.joined() == content && log.texts.last == "")
    }

    @Test(arguments: [Request.read, .readToEnd], ["/", nil])
    private func `a failed read reports its error and empty data`(request: Request, path: String?) {
        let handle = FileHandle(
            fileDescriptor: path.map { open($0, O_RDONLY) } ?? 1 << 20, closeOnDealloc: path != nil)
        let log = Log(request, handle)
        request(handle)
        log.wait()
        #expect(log.all[0]["NSFileHandleError"] as? Int == Int(path == nil ? EBADF : EISDIR))
        #expect(log.data == [Data()])
    }

    // MARK: Modes

    @Test func `a request completes in its modes only, and does not wait for an earlier one in other modes`()
        throws
    {
        let ((reader, writer), mode) = (try connectedHandles(), RunLoop.Mode("reading"))
        let (log, loop) = (Log(.read, reader), RunLoop.current)
        reader.readInBackgroundAndNotify(forModes: [mode])
        reader.readInBackgroundAndNotify()
        writer.write(Data("a".utf8))
        log.wait()
        #expect(!loop.run(mode: .default, before: .distantPast))
        writer.write(Data("b".utf8))
        while loop.run(mode: mode, before: .distantFuture) {}
        #expect(log.texts == ["a", "b"])
    }

    @Test(arguments: Request.allCases)
    private func `a request in no mode is dropped`(request: Request) {
        weak var handle: FileHandle?
        do {
            let pipe = Pipe()
            handle = pipe.fileHandleForReading
            request(pipe.fileHandleForReading, in: [])
        }
        #expect(handle == nil)
    }

    // MARK: Several requests

    @Test(arguments: [true, false], [Request.read, .wait])
    private func `pending requests take turns without blocking the loop`(isSocket: Bool, request: Request)
        throws
    {
        let (reader, writer) = try connectedHandles(isSocket: isSocket)
        var available: [Data] = []
        let log = Log(request, reader) { if request == .wait { available.append(reader.availableData) } }
        for _ in 0..<2 { request(reader) }
        for (index, line) in ["first", "second"].enumerated() {
            writer.write(Data(line.utf8))
            log.wait(index + 1)
        }
        RunLoop.current.run()  // returns when no request is pending
        let data = request == .wait ? available : log.data.compactMap { $0 }
        #expect(data == [Data("first".utf8), Data("second".utf8)])
    }

    @Test(arguments: [false, true])
    func `a handler of Foundation's reads while the loop's thread blocks, and passes bytes on in order`(
        isSocket: Bool
    ) throws {
        let (reader, writer) = try connectedHandles(isSocket: isSocket)
        let (loop, hasRead) = (RunLoop.current, DispatchSemaphore(value: 0))
        let pieces = Shared<[Data]>([])
        reader.readabilityHandler = { handle in
            let data = handle.availableData
            if data.isEmpty { handle.readabilityHandler = nil }
            loop.perform {
                pieces.value.append(data)
                if data.isEmpty { loop.stop() }
            }
            hasRead.signal()
        }
        for line in ["first", "second"] {
            writer.write(Data(line.utf8))
            hasRead.wait()
        }
        writer.closeFile()
        loop.run(in: .default)
        #expect(pieces.value == [Data("first".utf8), Data("second".utf8), Data()])
        #expect(reader.readabilityHandler == nil)
    }

    @Test func `a source for a handle's descriptor reads on the loop's thread, up to the end`() throws {
        let (reader, writer) = try connectedHandles()
        var pieces: [Data] = []
        let descriptor = FileDescriptor(rawValue: reader.fileDescriptor)
        let source = DescriptorSource(descriptor, for: .readable) { source, _ in
            let data = reader.availableData
            if data.isEmpty { source.cancel() }
            pieces.append(data)
            RunLoop.current.stop()
        }
        try RunLoop.current.add(source, forMode: .common)
        for line in ["first", "second"] {
            writer.write(Data(line.utf8))
            RunLoop.current.run(in: .default)
        }
        writer.closeFile()
        RunLoop.current.run()  // returns when the source is cancelled
        #expect(pieces == [Data("first".utf8), Data("second".utf8), Data()])
    }

    @Test func `two handles of one pipe do not block the loop`() throws {
        let (reader, writer) = try connectedHandles()
        let other = FileHandle(fileDescriptor: dup(reader.fileDescriptor), closeOnDealloc: true)
        let log = Log(.read, reader, other)
        for handle in [reader, other] { handle.readInBackgroundAndNotify() }
        writer.write(Data("only".utf8))
        log.wait()
        writer.closeFile()
        RunLoop.current.run()
        #expect(log.texts == ["only", ""])
    }

    @Test func `a request from inside a notification completes too`() throws {
        let (reader, writer) = try connectedHandles()
        var isFirst = true
        let log = Log(.read, reader) {
            if isFirst { reader.readInBackgroundAndNotify() }
            isFirst = false
        }
        reader.readInBackgroundAndNotify()
        writer.write(Data("a".utf8))
        writer.closeFile()
        log.wait(2)
        #expect(log.texts == ["a", ""])
    }

    @Test func `closing the handle cancels its notifications`() throws {
        let (reader, writer) = try connectedHandles()
        let log = Log(nil, reader)
        reader.readInBackgroundAndNotify()
        reader.waitForDataInBackgroundAndNotify()
        reader.closeFile()
        writer.write(Data("x".utf8))
        RunLoop.current.run()
        #expect(log.all.isEmpty)
    }
}
