import Dispatch
import Glibc
import ReactorFoundation
import ReactorTestSupport
import Testing

/// Counts events, on whatever queue.
private final class Listening: StreamDelegate, Sendable {
    let events = Shared<[UInt]>([])

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        events.update { $0.append(eventCode.rawValue) }
    }
}

@Suite struct CoreFoundationTests {
    @Test func `a pair to a host is handed out retained, once`() throws {
        weak var weakInput: InputStream?
        do {
            var readStream: Unmanaged<CFReadStream>?
            var writeStream: Unmanaged<CFWriteStream>?
            CFStreamCreatePairWithSocketToHost(
                kCFAllocatorDefault, "127.0.0.1" as CFString, UInt32(9), &readStream, &writeStream)
            let inputStream: InputStream = readStream!.takeRetainedValue()
            let outputStream = writeStream!.takeRetainedValue() as OutputStream
            weakInput = inputStream
            #expect(
                CFReadStreamSetProperty(
                    inputStream, CFStreamPropertyKey(rawValue: kCFStreamPropertyShouldCloseNativeSocket),
                    kCFBooleanTrue))
            #expect(
                CFWriteStreamCopyProperty(outputStream, .socketRemotePortNumber) as? NSNumber == 9)
            // A half that nobody takes is not leaked.
            CFStreamCreatePairWithSocketToHost(nil, "127.0.0.1", 9, nil, &writeStream)
            #expect(CFWriteStreamGetStatus(writeStream!.takeRetainedValue()) == .notOpen)
        }
        #expect(weakInput == nil)
    }

    @Test func `a bound pair is opened, written, read and closed`() {
        var (readStream, writeStream): (Unmanaged<CFReadStream>?, Unmanaged<CFWriteStream>?)
        CFStreamCreateBoundPair(nil, &readStream, &writeStream, 8)
        let (reader, writer) = (readStream!.takeRetainedValue(), writeStream!.takeRetainedValue())
        #expect(CFReadStreamOpen(reader) && CFWriteStreamOpen(writer) && !CFReadStreamOpen(reader))
        #expect(CFReadStreamGetStatus(reader) == .open && !CFReadStreamHasBytesAvailable(reader))
        #expect(CFWriteStreamCanAcceptBytes(writer) && CFWriteStreamWrite(writer, [1, 2], 2) == 2)
        var bytes: [UInt8] = [0, 0]
        #expect(CFReadStreamRead(reader, &bytes, 2) == 2 && bytes == [1, 2])
        CFReadStreamClose(reader)
        #expect(CFWriteStreamWrite(writer, bytes, 2) == -1)
        #expect((CFWriteStreamCopyError(writer) as NSError?)?.code == Int(Errno.brokenPipe.rawValue))
        CFWriteStreamClose(writer)
    }

    @Test func `constants are Cocoa's values by another name`() {
        #expect(kCFStreamPropertySocketSecurityLevel == Stream.PropertyKey.socketSecurityLevelKey.rawValue)
        #expect(kCFStreamPropertySOCKSProxy == Stream.PropertyKey.socksProxyConfigurationKey.rawValue)
        #expect(kCFStreamNetworkServiceType == Stream.PropertyKey.networkServiceType.rawValue)
        let levels: [(String, StreamSocketSecurityLevel)] = [
            (kCFStreamSocketSecurityLevelNone, .none), (kCFStreamSocketSecurityLevelSSLv2, .ssLv2),
            (kCFStreamSocketSecurityLevelSSLv3, .ssLv3), (kCFStreamSocketSecurityLevelTLSv1, .tlSv1),
            (kCFStreamSocketSecurityLevelNegotiatedSSL, .negotiatedSSL),
        ]
        for (name, level) in levels { #expect(name == level.rawValue) }
        let services: [(String, StreamNetworkServiceTypeValue)] = [
            (kCFStreamNetworkServiceTypeVoIP, .voIP), (kCFStreamNetworkServiceTypeVideo, .video),
            (kCFStreamNetworkServiceTypeBackground, .background),
            (kCFStreamNetworkServiceTypeVoice, .voice),
            (kCFStreamNetworkServiceTypeCallSignaling, .callSignaling),
        ]
        for (name, service) in services { #expect(name == service.rawValue) }
        let keys: [(String, StreamSOCKSProxyConfiguration)] = [
            (kCFStreamPropertySOCKSProxyHost, .hostKey), (kCFStreamPropertySOCKSProxyPort, .portKey),
            (kCFStreamPropertySOCKSVersion, .versionKey), (kCFStreamPropertySOCKSUser, .userKey),
            (kCFStreamPropertySOCKSPassword, .passwordKey),
        ]
        for (name, key) in keys { #expect(name == key.rawValue) }
        #expect(kCFStreamSocketSOCKSVersion4 == StreamSOCKSProxyVersion.version4.rawValue)
        #expect(kCFStreamSocketSOCKSVersion5 == StreamSOCKSProxyVersion.version5.rawValue)
    }

    @Test func `events go to a queue, until that is taken away`() async throws {
        try await onItsOwnThread {
            let (input, listening) = (InputStream(data: Data([1])), Listening())
            let queue = DispatchQueue(label: "events")
            input.delegate = listening
            CFReadStreamSetDispatchQueue(input, queue)
            CFReadStreamOpen(input)
            waitUntil { listening.events.value.count == 2 }
            CFReadStreamSetDispatchQueue(input, nil)
            #expect(input.read(upTo: 1) == [1])
            queue.sync {}
            #expect(listening.events.value == [1, 2])
        }
    }

    @Test func `a native socket's number is had as data`() throws {
        var sockets: [Int32] = [-1, -1]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &sockets) == 0)
        defer { for socket in sockets { close(socket) } }
        var readStream: Unmanaged<CFReadStream>?
        CFStreamCreatePairWithSocket(nil, sockets[0], &readStream, nil)
        let input = readStream!.takeRetainedValue()
        let data = try #require(input.property(forKey: .socketNativeHandle) as? Data)
        #expect(data.withUnsafeBytes { $0.loadUnaligned(as: Int32.self) } == sockets[0])
        let key = Stream.PropertyKey(rawValue: kCFStreamPropertySocketNativeHandle as String)
        #expect((input.property(forKey: key) as? NSData)?.length == 4)
    }

    @Test func `a loop is run and stopped`() async throws {
        try await onItsOwnThread {
            #expect(CFRunLoopRunInMode(.defaultMode, 10, false) == .finished)
            let loop = CFRunLoopGetCurrent()!
            let ran = Shared(false)
            let timer = Timer.scheduledTimer(withTimeInterval: 3600, repeats: true) { _ in }
            #expect(CFRunLoopRunInMode(CFRunLoopMode.defaultMode, 0, true) == .timedOut)
            CFRunLoopPerformBlock(loop, CFRunLoopMode.commonModes.rawValue) {
                ran.value = CFRunLoopCopyCurrentMode(CFRunLoopGetCurrent()) == .defaultMode
                CFRunLoopStop(CFRunLoopGetCurrent())
            }
            CFRunLoopWakeUp(loop.getCFRunLoop())
            CFRunLoopRun()
            #expect(ran.value && loop == RunLoop.current && CFRunLoopGetMain() === RunLoop.main)
            timer.invalidate()
        }
    }
}
