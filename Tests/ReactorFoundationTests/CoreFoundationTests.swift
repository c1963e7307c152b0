import Dispatch
import Glibc
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// A delegate that records events on any queue.
private final class EventRecorder: StreamDelegate, Sendable {
    let events = Shared<[UInt]>([])

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        events.update { $0.append(eventCode.rawValue) }
    }
}

@Suite(.runLoop) struct CoreFoundationTests {
    @Test func `a pair to a host is returned retained, without a leak`() throws {
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
            // A stream that the caller does not ask for is not leaked.
            CFStreamCreatePairWithSocketToHost(nil, "127.0.0.1", 9, nil, &writeStream)
            #expect(CFWriteStreamGetStatus(writeStream!.takeRetainedValue()) == .notOpen)
        }
        #expect(weakInput == nil)
    }

    @Test func `a bound pair opens, transfers bytes and closes`() {
        var (readStream, writeStream): (Unmanaged<CFReadStream>?, Unmanaged<CFWriteStream>?)
        CFStreamCreateBoundPair(nil, &readStream, &writeStream, 8)
        let (reader, writer) = (readStream!.takeRetainedValue(), writeStream!.takeRetainedValue())
        #expect(CFReadStreamOpen(reader) && CFWriteStreamOpen(writer) && !CFReadStreamOpen(reader))
        #expect(CFReadStreamGetStatus(reader) == .open && !CFReadStreamHasBytesAvailable(reader))
        #expect(CFWriteStreamCanAcceptBytes(writer) && CFWriteStreamWrite(writer, [1, 2], 2) == 2)
        var bytes: [UInt8] = [0, 0]
        #expect(CFReadStreamRead(reader, &bytes, 2) == 2 && bytes == [1, 2])
        CFReadStreamClose(reader)
        #expect(CFWriteStreamWrite(writer, bytes, 2) == 0 && CFWriteStreamGetStatus(writer) == .atEnd)
        #expect(CFWriteStreamCopyError(writer) == nil)
        CFWriteStreamClose(writer)
    }

    @Test func `Core Foundation's constants equal Cocoa's`() {
        #expect(
            kCFStreamPropertySocketSecurityLevel as String
                == Stream.PropertyKey.socketSecurityLevelKey.rawValue)
        #expect(
            kCFStreamPropertySOCKSProxy as String == Stream.PropertyKey.socksProxyConfigurationKey.rawValue)
        #expect(kCFStreamNetworkServiceType as String == Stream.PropertyKey.networkServiceType.rawValue)
        let levels: [(CFString, StreamSocketSecurityLevel)] = [
            (kCFStreamSocketSecurityLevelNone, .none), (kCFStreamSocketSecurityLevelSSLv2, .ssLv2),
            (kCFStreamSocketSecurityLevelSSLv3, .ssLv3), (kCFStreamSocketSecurityLevelTLSv1, .tlSv1),
            (kCFStreamSocketSecurityLevelNegotiatedSSL, .negotiatedSSL),
        ]
        for (name, level) in levels { #expect(name as String == level.rawValue) }
        let services: [(CFString, StreamNetworkServiceTypeValue)] = [
            (kCFStreamNetworkServiceTypeVoIP, .voIP), (kCFStreamNetworkServiceTypeVideo, .video),
            (kCFStreamNetworkServiceTypeBackground, .background),
            (kCFStreamNetworkServiceTypeVoice, .voice),
            (kCFStreamNetworkServiceTypeCallSignaling, .callSignaling),
        ]
        for (name, service) in services { #expect(name as String == service.rawValue) }
        let keys: [(CFString, StreamSOCKSProxyConfiguration)] = [
            (kCFStreamPropertySOCKSProxyHost, .hostKey), (kCFStreamPropertySOCKSProxyPort, .portKey),
            (kCFStreamPropertySOCKSVersion, .versionKey), (kCFStreamPropertySOCKSUser, .userKey),
            (kCFStreamPropertySOCKSPassword, .passwordKey),
        ]
        for (name, key) in keys { #expect(name as String == key.rawValue) }
        #expect(kCFStreamSocketSOCKSVersion4 as String == StreamSOCKSProxyVersion.version4.rawValue)
        #expect(kCFStreamSocketSOCKSVersion5 as String == StreamSOCKSProxyVersion.version5.rawValue)
    }

    @Test func `constants are objects and convert to the values that they name`() {
        let settings =
            [kCFStreamSSLPeerName: NSNull(), kCFStreamSSLLevel: kCFBooleanTrue] as [NSObject: NSObject]
        #expect(settings[kCFStreamSSLPeerName] is NSNull && settings[kCFStreamSSLLevel] as? Bool == true)
        #expect(kCFStreamPropertySocketSecurityLevel as Stream.PropertyKey == .socketSecurityLevelKey)
        #expect(kCFStreamPropertySocketSecurityLevel as String == "kCFStreamPropertySocketSecurityLevel")
        #expect(kCFStreamSocketSecurityLevelTLSv1 as StreamSocketSecurityLevel == .tlSv1)
        #expect(kCFStreamPropertySOCKSProxyHost as StreamSOCKSProxyConfiguration == .hostKey)
        #expect(kCFStreamSocketSOCKSVersion5 as StreamSOCKSProxyVersion == .version5)
        #expect(kCFStreamNetworkServiceTypeVideo as StreamNetworkServiceTypeValue == .video)
        #expect("kCFRunLoopDefaultMode" as CFString as RunLoop.Mode == .default)
        let boxed: Any = kCFStreamPropertySOCKSProxy
        #expect(boxed as? Stream.PropertyKey == .socksProxyConfigurationKey)
        #expect(CFStreamPropertyKey(kCFStreamNetworkServiceType) == .networkServiceType)
    }

    @Test func `a property accepts objects as values`() {
        let input = Stream.connection(to: .ipv4Loopback(port: 9)).input
        let closes = kCFStreamPropertyShouldCloseNativeSocket as Stream.PropertyKey
        #expect(input.setProperty(kCFBooleanFalse, forKey: closes))
        #expect(input.property(forKey: closes) as? Bool == false)
        let service = kCFStreamNetworkServiceType as Stream.PropertyKey
        #expect(input.setProperty(kCFStreamNetworkServiceTypeVoice, forKey: service))
        #expect(input.property(forKey: service) as? String == kCFStreamNetworkServiceTypeVoice as String)
        let settings = [kCFStreamSSLLevel: kCFStreamSocketSecurityLevelSSLv3] as [NSObject: NSObject]
        #expect(input.setProperty(settings, forKey: kCFStreamPropertySSLSettings as Stream.PropertyKey))
        input.open()
        #expect(input.streamError is StreamRequirementError)
    }

    @Test func `Stream.Status and CFStreamStatus are distinct types with the same raw values`() {
        func name(_ status: Stream.Status) -> String { "Cocoa's \(status)" }
        func name(_ status: CFStreamStatus) -> String { "Core Foundation's \(status)" }
        let input = InputStream(data: Data([1]))
        #expect(name(CFReadStreamGetStatus(input)) == "Core Foundation's notOpen")
        #expect(name(input.streamStatus) == "Cocoa's notOpen")
        for value in UInt(0)...7 {
            let (cocoa, core) = (Stream.Status(rawValue: value), CFStreamStatus(rawValue: Int(value)))
            #expect(cocoa.map { "\($0)" } == core.map { "\($0)" } && core != nil)
        }
    }

    @Test func `a dispatch queue receives events until it is removed`() {
        let (input, recorder) = (InputStream(data: Data([1])), EventRecorder())
        let queue = DispatchQueue(label: "events")
        input.delegate = recorder
        CFReadStreamSetDispatchQueue(input, queue)
        CFReadStreamOpen(input)
        waitUntil { recorder.events.value.count == 2 }
        CFReadStreamSetDispatchQueue(input, nil)
        #expect(input.read(upTo: 1) == [1])
        queue.sync {}
        #expect(recorder.events.value == [1, 2])
    }

    @Test func `the native handle property is the descriptor number as data`() throws {
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

    @Test func `a loop runs and stops through Core Foundation's functions`() {
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
