import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

/// Has `request` made, and runs the calling thread's loop until the notification comes.
private func answer(
    to name: Notification.Name, of handle: FileHandle, in mode: RunLoop.Mode = .default, _ request: () -> Void
) -> [AnyHashable: Any]? {
    let loop = RunLoop.current
    nonisolated(unsafe) var answer: [AnyHashable: Any]?
    let token = NotificationCenter.default.addObserver(forName: name, object: handle, queue: nil) {
        notification in
        #expect(RunLoop.current === loop)
        answer = notification.userInfo ?? [:]
    }
    request()
    while answer == nil, loop.run(mode: mode, before: Deadline.distantFuture) {}
    NotificationCenter.default.removeObserver(token)
    return answer
}

extension FileHandle {
    /// What reading in the background brings; nil if it fails.
    fileprivate func background(toEnd: Bool = false) -> Data? {
        let name: Notification.Name =
            toEnd ? .NSFileHandleReadToEndOfFileCompletion : FileHandle.readCompletionNotification
        let answer = answer(to: name, of: self) {
            if toEnd { readToEndOfFileInBackgroundAndNotify() } else { readInBackgroundAndNotify() }
        }
        return answer?[NSFileHandleNotificationDataItem] as? Data
    }
}

@Suite struct FileHandleTests {
    @Test func `reading gets what there is, and nothing at the end`() async throws {
        try await onItsOwnThread {
            let pipe = Pipe()
            pipe.fileHandleForWriting.write(Data("abc".utf8))
            #expect(pipe.fileHandleForReading.background() == Data("abc".utf8))
            pipe.fileHandleForWriting.closeFile()
            #expect(pipe.fileHandleForReading.background() == Data())
        }
    }

    @Test func `reading waits on the loop for what comes later`() async throws {
        try await onItsOwnThread {
            let pipe = Pipe()
            let writer = pipe.fileHandleForWriting
            Timer.scheduled(after: .milliseconds(1)) { _ in writer.write(Data("late".utf8)) }
            #expect(pipe.fileHandleForReading.background() == Data("late".utf8))
        }
    }

    @Test func `reading to the end gets all of it`() async throws {
        try await onItsOwnThread {
            let pipe = Pipe()
            let all = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0) })
            let writer = pipe.fileHandleForWriting
            Thread {
                writer.write(all)
                writer.closeFile()
            }.start()
            #expect(pipe.fileHandleForReading.background(toEnd: true) == all)
        }
    }

    @Test func `a regular file is read on from where it is`() async throws {
        try await onItsOwnThread {
            let file = try TemporaryFile("0123456789")
            let handle = try #require(FileHandle(forReadingAtPath: file.path.string))
            #expect(handle.readData(ofLength: 2) == Data("01".utf8))
            #expect(
                answer(to: .NSFileHandleDataAvailable, of: handle) {
                    handle.waitForDataInBackgroundAndNotify()
                } != nil)
            #expect(handle.background() == Data("23456789".utf8))
            #expect(handle.background(toEnd: true) == Data())
        }
    }

    @Test func `waiting for data leaves it where it is`() async throws {
        try await onItsOwnThread {
            let pipe = Pipe()
            let writer = pipe.fileHandleForWriting
            Timer.scheduled(after: .milliseconds(1)) { _ in writer.write(Data("x".utf8)) }
            let told = answer(to: .NSFileHandleDataAvailable, of: pipe.fileHandleForReading) {
                pipe.fileHandleForReading.waitForDataInBackgroundAndNotify()
            }
            #expect(told?.isEmpty == true)
            #expect(pipe.fileHandleForReading.availableData == Data("x".utf8))
        }
    }

    @Test func `accepting hands over a connection, which can be read and written`() async throws {
        try await onItsOwnThread {
            let port = try #require(SocketPort(tcpPort: 0))
            let listener = FileHandle(fileDescriptor: dup(port.socket), closeOnDealloc: true)
            port.invalidate()
            let address = try SocketAddress.local(of: FileDescriptor(rawValue: listener.fileDescriptor))
            let client = Stream.socketPair(to: .ipv4Loopback(port: address.port ?? 0))
            client.output.open()
            let told = answer(to: .NSFileHandleConnectionAccepted, of: listener) {
                listener.acceptConnectionInBackgroundAndNotify()
            }
            let connection = try #require(told?[NSFileHandleNotificationFileHandleItem] as? FileHandle)
            client.output.write(Array("hello".utf8))
            #expect(connection.readData(ofLength: 5) == Data("hello".utf8))
            client.output.close()
        }
    }

    @Test func `the modes are those asked for, and a list of them may be optional`() async throws {
        try await onItsOwnThread {
            let pipe = Pipe()
            let mode = RunLoop.Mode("reading")
            pipe.fileHandleForWriting.write(Data("abc".utf8))
            let modes: [RunLoop.Mode]? = [mode]
            let told = answer(
                to: FileHandle.readCompletionNotification, of: pipe.fileHandleForReading, in: mode
            ) {
                pipe.fileHandleForReading.readInBackgroundAndNotify(forModes: modes)
                #expect(!RunLoop.current.run(mode: .default, before: Deadline.distantPast))
            }
            #expect(told?[NSFileHandleNotificationDataItem] as? Data == Data("abc".utf8))
            #expect(
                answer(to: .NSFileHandleDataAvailable, of: pipe.fileHandleForWriting, in: .default) {
                    pipe.fileHandleForReading.closeFile()
                    pipe.fileHandleForWriting.waitForDataInBackgroundAndNotify(forModes: [
                        .default, .tracking,
                    ])
                } != nil)
        }
    }

    @Test(arguments: [true, false])
    func `what cannot be read is told of with its error, and no bytes`(toEnd: Bool) async throws {
        let name: Notification.Name =
            toEnd ? .NSFileHandleReadToEndOfFileCompletion : FileHandle.readCompletionNotification
        try await onItsOwnThread {
            let handle = FileHandle(fileDescriptor: open("/", O_RDONLY), closeOnDealloc: true)
            let told = answer(to: name, of: handle) {
                if toEnd {
                    handle.readToEndOfFileInBackgroundAndNotify()
                } else {
                    handle.readInBackgroundAndNotify()
                }
            }
            #expect(told?["NSFileHandleError"] as? Int == Int(EISDIR))
            #expect(told?[NSFileHandleNotificationDataItem] as? Data == Data())
        }
    }

    @Test func `a descriptor that is not open is told of with its error, and no bytes`() async throws {
        try await onItsOwnThread {
            let handle = FileHandle(fileDescriptor: 1 << 20, closeOnDealloc: false)
            let told = answer(to: FileHandle.readCompletionNotification, of: handle) {
                handle.readInBackgroundAndNotify()
            }
            #expect(told?["NSFileHandleError"] as? Int == Int(EBADF))
            #expect(told?[NSFileHandleNotificationDataItem] as? Data == Data())
        }
    }

    @Test func `a handle that is closed meanwhile posts nothing`() async throws {
        try await onItsOwnThread {
            let pipe = Pipe()
            let log = Trace()
            let token = NotificationCenter.default.addObserver(
                forName: nil, object: pipe.fileHandleForReading, queue: nil
            ) { log($0.name.rawValue) }
            pipe.fileHandleForReading.readInBackgroundAndNotify()
            pipe.fileHandleForReading.waitForDataInBackgroundAndNotify()
            pipe.fileHandleForReading.closeFile()
            pipe.fileHandleForWriting.write(Data("x".utf8))
            RunLoop.current.run()  // until nothing is left to wait for
            NotificationCenter.default.removeObserver(token)
            #expect(log.all.isEmpty)
        }
    }
}
