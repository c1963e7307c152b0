import Dispatch
import Glibc
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct CoreFoundationTests {
    @Test func `a pair to a host is returned retained, without a leak`() throws {
        weak var input: InputStream?
        do {
            var (readStream, writeStream): (Unmanaged<CFReadStream>?, Unmanaged<CFWriteStream>?)
            CFStreamCreatePairWithSocketToHost(
                kCFAllocatorDefault, "127.0.0.1" as CFString, UInt32(9), &readStream, &writeStream)
            let inputStream: InputStream = readStream!.takeRetainedValue()
            let outputStream = writeStream!.takeRetainedValue() as OutputStream
            input = inputStream
            let key = CFStreamPropertyKey(rawValue: kCFStreamPropertyShouldCloseNativeSocket)
            #expect(CFReadStreamSetProperty(inputStream, key, kCFBooleanTrue))
            #expect(CFWriteStreamCopyProperty(outputStream, .socketRemotePortNumber) as? NSNumber == 9)
            // A stream that the caller does not ask for is not leaked.
            CFStreamCreatePairWithSocketToHost(nil, "127.0.0.1", 9, nil, &writeStream)
            #expect(CFWriteStreamGetStatus(writeStream!.takeRetainedValue()) == .notOpen)
        }
        #expect(input == nil)
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
        let names: [(CFString, String)] = [
            (kCFStreamPropertySocketSecurityLevel, Stream.PropertyKey.socketSecurityLevelKey.rawValue),
            (kCFStreamPropertySOCKSProxy, Stream.PropertyKey.socksProxyConfigurationKey.rawValue),
            (kCFStreamNetworkServiceType, Stream.PropertyKey.networkServiceType.rawValue),
            (kCFStreamSocketSecurityLevelNone, StreamSocketSecurityLevel.none.rawValue),
            (kCFStreamSocketSecurityLevelSSLv2, StreamSocketSecurityLevel.ssLv2.rawValue),
            (kCFStreamSocketSecurityLevelSSLv3, StreamSocketSecurityLevel.ssLv3.rawValue),
            (kCFStreamSocketSecurityLevelTLSv1, StreamSocketSecurityLevel.tlSv1.rawValue),
            (kCFStreamSocketSecurityLevelNegotiatedSSL, StreamSocketSecurityLevel.negotiatedSSL.rawValue),
            (kCFStreamNetworkServiceTypeVoIP, StreamNetworkServiceTypeValue.voIP.rawValue),
            (kCFStreamNetworkServiceTypeVideo, StreamNetworkServiceTypeValue.video.rawValue),
            (kCFStreamNetworkServiceTypeBackground, StreamNetworkServiceTypeValue.background.rawValue),
            (kCFStreamNetworkServiceTypeVoice, StreamNetworkServiceTypeValue.voice.rawValue),
            (kCFStreamNetworkServiceTypeCallSignaling, StreamNetworkServiceTypeValue.callSignaling.rawValue),
            (kCFStreamPropertySOCKSProxyHost, StreamSOCKSProxyConfiguration.hostKey.rawValue),
            (kCFStreamPropertySOCKSProxyPort, StreamSOCKSProxyConfiguration.portKey.rawValue),
            (kCFStreamPropertySOCKSVersion, StreamSOCKSProxyConfiguration.versionKey.rawValue),
            (kCFStreamPropertySOCKSUser, StreamSOCKSProxyConfiguration.userKey.rawValue),
            (kCFStreamPropertySOCKSPassword, StreamSOCKSProxyConfiguration.passwordKey.rawValue),
            (kCFStreamSocketSOCKSVersion4, StreamSOCKSProxyVersion.version4.rawValue),
            (kCFStreamSocketSOCKSVersion5, StreamSOCKSProxyVersion.version5.rawValue),
        ]
        for (name, value) in names { #expect(name as String == value) }
    }

    @Test func `constants are objects and convert to the values that they name`() {
        let settings =
            [kCFStreamSSLPeerName: NSNull(), kCFStreamSSLLevel: kCFBooleanTrue] as [NSObject: NSObject]
        #expect(settings[kCFStreamSSLPeerName] is NSNull && settings[kCFStreamSSLLevel] as? Bool == true)
        #expect(kCFStreamPropertySocketSecurityLevel as Stream.PropertyKey == .socketSecurityLevelKey)
        #expect(kCFStreamSocketSecurityLevelTLSv1 as StreamSocketSecurityLevel == .tlSv1)
        #expect(kCFStreamPropertySOCKSProxyHost as StreamSOCKSProxyConfiguration == .hostKey)
        #expect(kCFStreamSocketSOCKSVersion5 as StreamSOCKSProxyVersion == .version5)
        #expect(kCFStreamNetworkServiceTypeVideo as StreamNetworkServiceTypeValue == .video)
        #expect("kCFRunLoopDefaultMode" as CFString as RunLoop.Mode == .default)
        let boxed: Any = kCFStreamPropertySOCKSProxy
        #expect(boxed as? Stream.PropertyKey == .socksProxyConfigurationKey)
        #expect(CFStreamPropertyKey(kCFStreamNetworkServiceType) == .networkServiceType)
        // The statuses are distinct types with the same raw values.
        for value in UInt(0)...7 {
            let (cocoa, core) = (Stream.Status(rawValue: value), CFStreamStatus(rawValue: Int(value)))
            #expect(cocoa.map { "\($0)" } == core.map { "\($0)" } && core != nil)
        }
    }

    @Test func `the native handle property is the descriptor number as data`() throws {
        let (peer, other) = try SocketPeer.pair()
        var readStream: Unmanaged<CFReadStream>?
        CFStreamCreatePairWithSocket(nil, other.rawValue, &readStream, nil)
        let input = readStream!.takeRetainedValue()
        let data = try #require(input.property(forKey: .socketNativeHandle) as? Data)
        #expect(data.withUnsafeBytes { $0.loadUnaligned(as: Int32.self) } == other.rawValue)
        let key = Stream.PropertyKey(rawValue: kCFStreamPropertySocketNativeHandle as String)
        #expect((input.property(forKey: key) as? NSData)?.length == 4)
        try other.close()
        peer.close()
    }

    @Test func `a loop runs and stops through Core Foundation's functions`() {
        #expect(CFRunLoopRunInMode(.defaultMode, 10, false) == .finished)
        let (loop, ran) = (CFRunLoopGetCurrent()!, Shared(false))
        let timer = Timer.scheduledTimer(withTimeInterval: 3600, repeats: true) { _ in }
        #expect(CFRunLoopRunInMode(CFRunLoopMode.defaultMode, 0, true) == .timedOut)
        CFRunLoopPerformBlock(loop, CFRunLoopMode.commonModes.rawValue) {
            ran.value = CFRunLoopCopyCurrentMode(CFRunLoopGetCurrent()) == .defaultMode
            CFRunLoopStop(CFRunLoopGetCurrent())
        }
        CFRunLoopWakeUp(loop.getCFRunLoop())
        CFRunLoopRun()
        #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .timedOut)
        #expect(CFRunLoopRunInMode("another" as CFString, 0, true) == .finished)
        #expect(ran.value && loop == RunLoop.current && CFRunLoopGetMain() === RunLoop.main)
        timer.invalidate()
    }

    @Test func `a block is performed in the mode that a constant names`() {
        let (loop, modes) = (CFRunLoopGetCurrent()!, Shared<[CFRunLoopMode]>([]))
        for mode in [kCFRunLoopDefaultMode, kCFRunLoopCommonModes] {
            CFRunLoopPerformBlock(loop, mode) {
                modes.value += [CFRunLoopCopyCurrentMode(CFRunLoopGetCurrent())]
            }
        }
        CFRunLoopRunInMode(.defaultMode, 0, false)
        #expect(modes.value == [.defaultMode, .defaultMode])
    }

    @Test func `null and the absolute time are Foundation's`() {
        let settings =
            [kCFStreamSSLPeerName: kCFNull!, kCFStreamSSLLevel: kCFBooleanFalse] as [NSObject: NSObject]
        #expect(settings[kCFStreamSSLPeerName] == NSNull())
        let before: CFAbsoluteTime = Date().timeIntervalSinceReferenceDate
        let elapsed: CFTimeInterval = CFAbsoluteTimeGetCurrent() - before
        #expect(elapsed >= 0)
    }
}
