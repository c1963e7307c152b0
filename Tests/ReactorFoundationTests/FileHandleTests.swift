import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// Makes a request and runs the calling thread's loop until its notification arrives. Returns the user info.
private func userInfoPosted(
    of name: Notification.Name, from handle: FileHandle, in mode: RunLoop.Mode = .default,
    _ request: () -> Void
) -> [AnyHashable: Any]? {
    let loop = RunLoop.current
    nonisolated(unsafe) var userInfo: [AnyHashable: Any]?
    let token = NotificationCenter.default.addObserver(forName: name, object: handle, queue: nil) {
        notification in
        #expect(RunLoop.current === loop)
        userInfo = notification.userInfo ?? [:]
    }
    request()
    while userInfo == nil, loop.run(mode: mode, before: Deadline.distantFuture) {}
    NotificationCenter.default.removeObserver(token)
    return userInfo
}

extension FileHandle {
    /// Reads in the background and returns the data of the notification; nil if it has none.
    fileprivate func readInBackground(toEnd: Bool = false) -> Data? {
        let name: Notification.Name =
            toEnd ? .NSFileHandleReadToEndOfFileCompletion : FileHandle.readCompletionNotification
        let userInfo = userInfoPosted(of: name, from: self) {
            if toEnd { readToEndOfFileInBackgroundAndNotify() } else { readInBackgroundAndNotify() }
        }
        return userInfo?[NSFileHandleNotificationDataItem] as? Data
    }
}

/// The connected ends of a pipe or of a socket pair.
private func connectedHandles(socket: Bool) throws -> (reader: FileHandle, writer: FileHandle) {
    guard socket else {
        let pipe = Pipe()
        return (pipe.fileHandleForReading, pipe.fileHandleForWriting)
    }
    let numbers = try socketPair()
    return (
        FileHandle(fileDescriptor: numbers.0, closeOnDealloc: true),
        FileHandle(fileDescriptor: numbers.1, closeOnDealloc: true)
    )
}

/// Logs what `describe` makes of each notification called `name` about `handle`, until `body` returns. Each stops the
/// loop at the end of the pass in which it is posted.
private func withLog(
    of name: Notification.Name, from handle: FileHandle,
    _ describe: @escaping @Sendable (Notification) -> String, _ body: (Trace) -> Void
) {
    let log = Trace()
    let token = NotificationCenter.default.addObserver(forName: name, object: handle, queue: nil) {
        log(describe($0))
        RunLoop.current.stop()
    }
    body(log)
    NotificationCenter.default.removeObserver(token)
}

private func text(_ notification: Notification) -> String {
    let data = notification.userInfo?[NSFileHandleNotificationDataItem] as? Data
    return data.map { String(decoding: $0, as: UTF8.self) } ?? "no data"
}

@Suite(.runLoop) struct FileHandleTests {
    @Test func `reading returns the available data, and no data at the end`() {
        let pipe = Pipe()
        pipe.fileHandleForWriting.write(Data("abc".utf8))
        #expect(pipe.fileHandleForReading.readInBackground() == Data("abc".utf8))
        pipe.fileHandleForWriting.closeFile()
        #expect(pipe.fileHandleForReading.readInBackground() == Data())
    }

    @Test func `reading waits on the loop for data`() {
        let pipe = Pipe()
        let writer = pipe.fileHandleForWriting
        Timer.scheduled(after: .milliseconds(1)) { _ in writer.write(Data("late".utf8)) }
        #expect(pipe.fileHandleForReading.readInBackground() == Data("late".utf8))
    }

    @Test func `reading to the end returns all data`() {
        let pipe = Pipe()
        let all = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0) })
        let writer = pipe.fileHandleForWriting
        Thread {
            writer.write(all)
            writer.closeFile()
        }.start()
        #expect(pipe.fileHandleForReading.readInBackground(toEnd: true) == all)
    }

    @Test func `a regular file is read from its current offset`() throws {
        let file = try TemporaryFile("0123456789")
        let handle = try #require(FileHandle(forReadingAtPath: file.path.string))
        #expect(handle.readData(ofLength: 2) == Data("01".utf8))
        #expect(
            userInfoPosted(of: .NSFileHandleDataAvailable, from: handle) {
                handle.waitForDataInBackgroundAndNotify()
            } != nil)
        #expect(handle.readInBackground() == Data("23456789".utf8))
        #expect(handle.readInBackground(toEnd: true) == Data())
    }

    @Test func `waiting for data does not consume it`() {
        let pipe = Pipe()
        let writer = pipe.fileHandleForWriting
        Timer.scheduled(after: .milliseconds(1)) { _ in writer.write(Data("x".utf8)) }
        let userInfo = userInfoPosted(of: .NSFileHandleDataAvailable, from: pipe.fileHandleForReading) {
            pipe.fileHandleForReading.waitForDataInBackgroundAndNotify()
        }
        #expect(userInfo?.isEmpty == true)
        #expect(pipe.fileHandleForReading.availableData == Data("x".utf8))
    }

    @Test func `accepting returns a connected file handle`() throws {
        let port = try #require(SocketPort(tcpPort: 0))
        let listener = FileHandle(fileDescriptor: dup(port.socket), closeOnDealloc: true)
        port.invalidate()
        let address = try SocketAddress.local(of: FileDescriptor(rawValue: listener.fileDescriptor))
        let client = Stream.connection(to: .ipv4Loopback(port: address.port ?? 0))
        client.output.open()
        let userInfo = userInfoPosted(of: .NSFileHandleConnectionAccepted, from: listener) {
            listener.acceptConnectionInBackgroundAndNotify()
        }
        let connection = try #require(userInfo?[NSFileHandleNotificationFileHandleItem] as? FileHandle)
        client.output.write(Array("hello".utf8))
        #expect(connection.readData(ofLength: 5) == Data("hello".utf8))
        client.output.close()
    }

    @Test func `a request completes in its modes, also if the list of modes is optional`() {
        let pipe = Pipe()
        let mode = RunLoop.Mode("reading")
        pipe.fileHandleForWriting.write(Data("abc".utf8))
        let modes: [RunLoop.Mode]? = [mode]
        let userInfo = userInfoPosted(
            of: FileHandle.readCompletionNotification, from: pipe.fileHandleForReading, in: mode
        ) {
            pipe.fileHandleForReading.readInBackgroundAndNotify(forModes: modes)
            #expect(!RunLoop.current.run(mode: .default, before: Deadline.distantPast))
        }
        #expect(userInfo?[NSFileHandleNotificationDataItem] as? Data == Data("abc".utf8))
        #expect(
            userInfoPosted(of: .NSFileHandleDataAvailable, from: pipe.fileHandleForWriting, in: .default) {
                pipe.fileHandleForReading.closeFile()
                pipe.fileHandleForWriting.waitForDataInBackgroundAndNotify(forModes: [
                    .default, .tracking,
                ])
            } != nil)
    }

    @Test(arguments: [true, false])
    func `a failed read reports its error and empty data`(toEnd: Bool) async throws {
        let name: Notification.Name =
            toEnd ? .NSFileHandleReadToEndOfFileCompletion : FileHandle.readCompletionNotification
        try await onItsOwnThread {
            let handle = FileHandle(fileDescriptor: open("/", O_RDONLY), closeOnDealloc: true)
            let userInfo = userInfoPosted(of: name, from: handle) {
                if toEnd {
                    handle.readToEndOfFileInBackgroundAndNotify()
                } else {
                    handle.readInBackgroundAndNotify()
                }
            }
            #expect(userInfo?["NSFileHandleError"] as? Int == Int(EISDIR))
            #expect(userInfo?[NSFileHandleNotificationDataItem] as? Data == Data())
        }
    }

    @Test func `a closed descriptor reports its error and empty data`() {
        let handle = FileHandle(fileDescriptor: 1 << 20, closeOnDealloc: false)
        let userInfo = userInfoPosted(of: FileHandle.readCompletionNotification, from: handle) {
            handle.readInBackgroundAndNotify()
        }
        #expect(userInfo?["NSFileHandleError"] as? Int == Int(EBADF))
        #expect(userInfo?[NSFileHandleNotificationDataItem] as? Data == Data())
    }

    @Test func `closing the handle cancels its notifications`() {
        let pipe = Pipe()
        let log = Trace()
        let token = NotificationCenter.default.addObserver(
            forName: nil, object: pipe.fileHandleForReading, queue: nil
        ) { log($0.name.rawValue) }
        pipe.fileHandleForReading.readInBackgroundAndNotify()
        pipe.fileHandleForReading.waitForDataInBackgroundAndNotify()
        pipe.fileHandleForReading.closeFile()
        pipe.fileHandleForWriting.write(Data("x".utf8))
        RunLoop.current.run()  // returns when no request is pending
        NotificationCenter.default.removeObserver(token)
        #expect(log.all.isEmpty)
    }

    // MARK: Several requests

    @Test(arguments: [true, false])
    func `pending reads take turns without blocking the loop`(socket: Bool) throws {
        let (reader, writer) = try connectedHandles(socket: socket)
        withLog(of: FileHandle.readCompletionNotification, from: reader, text) { log in
            for _ in 0..<3 { reader.readInBackgroundAndNotify() }
            for line in ["first", "second"] {
                let count = log.all.count
                writer.write(Data(line.utf8))
                while log.all.count == count { RunLoop.current.run(in: .default) }
            }
            writer.closeFile()
            RunLoop.current.run()  // returns when no request is pending
            #expect(log.all == ["first", "second", ""])
        }
    }

    @Test(arguments: [true, false])
    func `a notification of available data is posted only while there is data`(socket: Bool) throws {
        let (reader, writer) = try connectedHandles(socket: socket)
        withLog(
            of: .NSFileHandleDataAvailable, from: reader,
            { _ in String(decoding: reader.availableData, as: UTF8.self) }
        ) { log in
            for _ in 0..<2 { reader.waitForDataInBackgroundAndNotify() }
            for line in ["first", "second"] {
                let count = log.all.count
                writer.write(Data(line.utf8))
                while log.all.count == count { RunLoop.current.run(in: .default) }
            }
            RunLoop.current.run()
            #expect(log.all == ["first", "second"])
        }
    }

    @Test func `two handles of one pipe do not block the loop`() throws {
        let (reader, writer) = try connectedHandles(socket: false)
        let other = FileHandle(fileDescriptor: dup(reader.fileDescriptor), closeOnDealloc: true)
        let log = Trace()
        let tokens = [reader, other].map { handle in
            NotificationCenter.default.addObserver(
                forName: FileHandle.readCompletionNotification, object: handle, queue: nil
            ) {
                log(text($0))
                RunLoop.current.stop()
            }
        }
        for handle in [reader, other] { handle.readInBackgroundAndNotify() }
        writer.write(Data("only".utf8))
        while log.all.isEmpty { RunLoop.current.run(in: .default) }
        writer.closeFile()
        RunLoop.current.run()
        #expect(log.all == ["only", ""])
        for token in tokens { NotificationCenter.default.removeObserver(token) }
    }

    @Test func `pending reads of a regular file return consecutive parts`() throws {
        let content = (0..<20_000).map { "\($0) " }.joined()
        let file = try TemporaryFile(content)
        let handle = try #require(FileHandle(forReadingAtPath: file.path.string))
        withLog(of: FileHandle.readCompletionNotification, from: handle, text) { log in
            for _ in 0..<3 { handle.readInBackgroundAndNotify() }
            RunLoop.current.run()
            #expect(log.all.count == 3 && log.all.last == "")
            #expect(log.all.joined() == content)
        }
    }

    @Test func `a request does not wait for an earlier one in other modes`() throws {
        let (reader, writer) = try connectedHandles(socket: false)
        let loop = RunLoop.current
        withLog(of: FileHandle.readCompletionNotification, from: reader, text) { log in
            reader.readInBackgroundAndNotify(forModes: [RunLoop.Mode("first")])
            reader.readInBackgroundAndNotify()
            writer.write(Data("a".utf8))
            while log.all.isEmpty { loop.run(in: .default) }
            #expect(!loop.run(mode: .default, before: .distantPast))
            writer.write(Data("b".utf8))
            while loop.run(mode: RunLoop.Mode("first"), before: .distantFuture) {}
            #expect(log.all == ["a", "b"])
        }
    }

    @Test func `a request from inside a notification completes too`() async throws {
        try await onItsOwnThread {
            let (reader, writer) = try connectedHandles(socket: false)
            withLog(
                of: FileHandle.readCompletionNotification, from: reader,
                { notification in
                    if text(notification) != "" { reader.readInBackgroundAndNotify() }
                    return text(notification)
                }
            ) { log in
                reader.readInBackgroundAndNotify()
                writer.write(Data("a".utf8))
                writer.closeFile()
                RunLoop.current.run()
                #expect(log.all == ["a", ""])
            }
        }
    }

    @Test func `a request in no mode is dropped`() {
        let none: [RunLoop.Mode] = []
        let requests: [(FileHandle) -> Void] = [
            { $0.readInBackgroundAndNotify(forModes: none) },
            { $0.readToEndOfFileInBackgroundAndNotify(forModes: none) },
            { $0.waitForDataInBackgroundAndNotify(forModes: none) },
            { $0.acceptConnectionInBackgroundAndNotify(forModes: none) },
        ]
        for request in requests {
            weak var handle: FileHandle?
            do {
                let pipe = Pipe()
                handle = pipe.fileHandleForReading
                request(pipe.fileHandleForReading)
            }
            #expect(handle == nil)
        }
    }
}
