import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct StreamCocoaTests {
    private func readAll(_ input: InputStream) -> Data {
        var data = Data()
        var buffer = [UInt8](repeating: 0, count: 5)
        input.open()
        while case let count = input.read(&buffer, maxLength: buffer.count), count > 0 {
            data.append(buffer, count: count)
        }
        return data
    }

    @Test(arguments: [0, 1, 12, 70_000])
    func `a data stream reads all of its bytes`(count: Int) {
        let data = Data((0..<count).map { UInt8(truncatingIfNeeded: $0) })
        #expect(readAll(InputStream(data: data)) == data)
        // A slice does not start at the beginning of its storage.
        #expect(readAll(InputStream(data: data.dropFirst(1))) == data.dropFirst(1))
    }

    @Test func `getBuffer returns all remaining bytes`() throws {
        let input = InputStream(data: Data([1, 2, 3]))
        input.open()
        #expect(input.read(upTo: 1) == [1])
        var (bytes, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        #expect(input.getBuffer(&bytes, length: &count) && !input.hasBytesAvailable)
        #expect(Array(UnsafeBufferPointer(start: try #require(bytes), count: count)) == [2, 3])
    }

    @Test func `a file URL opens a file for writing, appending and reading from an offset`() throws {
        let folder = TemporaryFolder()
        let url = URL(fileURLWithPath: folder.path("żółw"))
        for (text, append) in [("abc", false), ("def", true)] {
            let output = try #require(OutputStream(url: url, append: append))
            output.open()
            #expect(output.write(Array(text.utf8), maxLength: 3) == 3)
            output.close()
        }
        #expect(readAll(try #require(InputStream(fileAtPath: url.path))) == Data("abcdef".utf8))
        let input = try #require(InputStream(url: url))
        #expect(input.setProperty(NSNumber(value: 2), forKey: .fileCurrentOffsetKey))
        #expect(!input.setProperty(NSNumber(value: -2), forKey: .fileCurrentOffsetKey))
        input.open()
        #expect(input.property(forKey: .fileCurrentOffsetKey) as? NSNumber == 2)
        #expect(readAll(input) == Data("cdef".utf8))
        #expect((input.property(forKey: .fileCurrentOffsetKey) as? NSNumber)?.intValue == 6)
        let other = try #require(URL(string: "https://example.org/file"))
        #expect(InputStream(url: other) == nil && OutputStream(url: other, append: false) == nil)
    }

    @Test func `the data written to memory is readable before opening, while open and after closing`() {
        for output in [OutputStream.toMemory(), OutputStream(toMemory: ())] {
            func written() -> Data? { output.property(forKey: .dataWrittenToMemoryStreamKey) as? Data }
            #expect(written() == Data())
            output.open()
            output.write([1, 2, 3], maxLength: 3)
            #expect(written() == Data([1, 2, 3]))
            output.close()
            #expect(written() == Data([1, 2, 3]))
            #expect(output.property(forKey: .dataWrittenToMemoryStreamKey) is NSData)
        }
        #expect(InputStream(data: Data()).property(forKey: .dataWrittenToMemoryStreamKey) == nil)
    }

    @Test func `opening a missing file fails with ENOENT in the POSIX domain`() throws {
        let input = try #require(InputStream(fileAtPath: "/nowhere/at all"))
        // Foundation on Linux crashes here.
        #expect(input.streamError == nil)
        input.open()
        let error = try #require(input.streamError)
        #expect((error as NSError).code == Int(ENOENT) && (error as NSError).domain == NSPOSIXErrorDomain)
        #expect((error as? IOError)?.errno == .noSuchFileOrDirectory)
        #expect(error.localizedDescription.contains("No such file"))
    }

    @Test func `an unknown host fails in the CFNetwork domain`() throws {
        var input: InputStream?
        // Longer than a host name may be, so the resolver fails without asking a server.
        let name = String(repeating: "x", count: 300)
        Stream.getStreamsToHost(withName: name, port: 1, inputStream: &input, outputStream: nil)
        let stream = try #require(input)
        stream.open()
        #expect(stream.read(upTo: 1).isEmpty)
        let error = try #require(stream.streamError as NSError?)
        #expect(error.domain == "kCFErrorDomainCFNetwork" && error.code == 2)
        #expect(error.localizedDescription.contains("resolve"))
    }

    @Test func `getBoundStreams accepts a nil pointer for either stream`() throws {
        var (input, output): (InputStream?, OutputStream?)
        Stream.getBoundStreams(withBufferSize: 16, inputStream: &input, outputStream: &output)
        let (reader, writer) = (try #require(input), try #require(output))
        reader.open()
        writer.open()
        #expect(writer.write([7], maxLength: 1) == 1 && reader.read(upTo: 2) == [7])
        Stream.getBoundStreams(withBufferSize: 16, inputStream: nil, outputStream: &output)
        #expect(output !== writer)
    }
}

@Suite(.runLoop) struct SocketPropertyTests {
    /// The input stream of a pair on whose other stream a property has been set.
    private func stream(with value: Any?, forKey key: Stream.PropertyKey = .socketSecurityLevelKey)
        -> InputStream
    {
        let pair = Connection(to: .ipv4Loopback(port: 9)).streams
        #expect(pair.output.setProperty(value, forKey: key))
        return pair.input
    }

    @Test func `a level that no program has may be a value, a string, an object or an entry of SSL settings`()
        throws
    {
        // With or without ReactorTLS.
        let levels: [Any] = [
            StreamSocketSecurityLevel.ssLv3, StreamSocketSecurityLevel.ssLv2.rawValue,
            Foundation.StreamSocketSecurityLevel.ssLv3,
        ]
        var values: [Any] = levels.flatMap { level in
            [level, level as AnyObject, [kCFStreamSSLLevel as String: level] as [String: Any]] as [Any]
        }
        let name = StreamSocketSecurityLevel.ssLv3.rawValue as NSString
        values += [
            name, NSDictionary(dictionary: [kCFStreamSSLLevel: name]), NSNumber(value: true), NSNull(),
        ]
        for value in values {
            for key in [Stream.PropertyKey.socketSecurityLevelKey, .init(kCFStreamPropertySSLSettings)] {
                let input = stream(with: value, forKey: key)
                input.open()
                let error = try #require(input.streamError)
                #expect(error is IOError && (error as NSError).domain == NSPOSIXErrorDomain)
                #expect((error as NSError).code == Int(Errno.protocolNotSupported.rawValue))
                #expect(error.localizedDescription.contains("TLS"))
            }
        }
    }

    @Test func `a level or a service type may be a value, a string, an object or an entry of SSL settings`() {
        let (none, voice) = (StreamSocketSecurityLevel.none, StreamNetworkServiceTypeValue.voice)
        let levels: [Any?] = [
            nil, none, none as AnyObject, none.rawValue as NSString,
            Foundation.StreamSocketSecurityLevel.none,
            [kCFStreamSSLLevel: none.rawValue] as NSDictionary,
        ]
        let types: [Any?] = [
            voice, voice.rawValue as NSString, voice as AnyObject, kCFStreamNetworkServiceTypeVoice,
        ]
        for (key, values, name) in [
            (Stream.PropertyKey.socketSecurityLevelKey, levels, none.rawValue),
            (.networkServiceType, types, voice.rawValue),
        ] {
            for value in values {
                let property = stream(with: value, forKey: key).property(forKey: key) as? NSString
                #expect(property == name as NSString)
            }
        }
    }

    @Test func `a SOCKS proxy is used whatever type the dictionary has, and an incomplete one fails`() {
        typealias Key = StreamSOCKSProxyConfiguration
        let proxies: [Any] = [
            [Key.hostKey: "localhost", .portKey: NSNumber(value: 1080)] as [Key: Any],
            [kCFStreamPropertySOCKSProxyHost: "localhost", kCFStreamPropertySOCKSProxyPort: 1080]
                as NSDictionary,
        ]
        for proxy in proxies {
            let input = stream(with: proxy, forKey: .socksProxyConfigurationKey)
            let copy = input.property(forKey: .socksProxyConfigurationKey) as? [String: Any]
            #expect(copy?["SOCKSProxy"] as? String == "localhost" && copy?["SOCKSPort"] as? Int == 1080)
        }
        let incomplete: [Any] = [
            [Key.hostKey: "localhost"] as [Key: Any], [kCFStreamPropertySOCKSProxyPort: 1080] as NSDictionary,
            [Key.versionKey.rawValue: StreamSOCKSProxyVersion.version5.rawValue],
        ]
        for proxy in incomplete {
            let input = stream(with: proxy, forKey: .socksProxyConfigurationKey)
            input.open()
            #expect((input.streamError as? IOError)?.reason == .proxyUnavailable)
        }
    }

    @Test func `whether to close the socket may be a number or Core Foundation's constant`() {
        let input = Connection(to: .ipv4Loopback(port: 9)).streams.input
        for value in [kCFBooleanFalse as Any, NSNumber(value: false)] {
            #expect(input.setProperty(true, forKey: .shouldCloseNativeSocketKey))
            #expect(input.setProperty(value, forKey: .shouldCloseNativeSocketKey))
            #expect(input.property(forKey: .shouldCloseNativeSocketKey) as? Bool == false)
        }
    }
}

/// A delegate that reads, and records the events: those that do not arrive on the queue, or before another has been handled,
/// as such.
private final class Reader: StreamDelegate, Sendable {
    let bytes = Shared<[UInt8]>([])
    let log = Shared<[String]>([])
    private let depth = Shared(0)
    private let queue: OperationQueue

    init(_ queue: OperationQueue) { self.queue = queue }

    func waitForEnd() { log.wait { $0.last == "16" ? () : nil } }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        let depth = depth.update { depth in
            depth += 1
            return depth
        }
        let isRight = OperationQueue.current === queue && depth == 1
        if eventCode == .hasBytesAvailable, let input = aStream as? InputStream {
            let read = input.read(upTo: 3)
            bytes.update { $0 += read }
        }
        if eventCode == .endEncountered { aStream.close() }
        self.depth.update { $0 -= 1 }
        log.update { $0.append("\(eventCode.rawValue)\(isRight ? "" : " misplaced")") }
    }
}

@Suite(.runLoop) struct StreamOperationQueueTests {
    @Test(arguments: [1, 4, OperationQueue.defaultMaxConcurrentOperationCount])
    func `events arrive on the queue one at a time, whatever its maximum concurrency`(maximum: Int) {
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = maximum
        let (reader, data) = (Reader(queue), Data((0..<100).map { UInt8($0) }))
        let input = InputStream(data: data)
        input.delegate = reader
        input.setDelegateQueue(queue)
        input.open()
        reader.waitForEnd()
        queue.waitUntilAllOperationsAreFinished()
        #expect(reader.bytes.value == Array(data))
        #expect(reader.log.value == ["1"] + Array(repeating: "2", count: 34) + ["16"])
    }

    @Test func `a suspended queue delays events, and drops those of a stream closed meanwhile`() {
        let queue = OperationQueue()
        queue.isSuspended = true
        let (reader, other) = (Reader(queue), Reader(queue))
        let (input, closed) = (InputStream(data: Data([1])), InputStream(data: Data([2])))
        for (stream, delegate) in [(input, reader), (closed, other)] {
            stream.delegate = delegate
            stream.setDelegateQueue(queue)
            stream.open()
        }
        waitUntil { queue.operationCount == 2 }
        #expect(reader.log.value.isEmpty)
        closed.close()
        queue.isSuspended = false
        reader.waitForEnd()
        queue.waitUntilAllOperationsAreFinished()
        #expect(reader.log.value == ["1", "2", "16"] && other.log.value.isEmpty)
    }
}
