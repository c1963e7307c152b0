import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct StreamCocoaTests {
    private func temporaryURL(_ name: String = UUID().uuidString) -> URL {
        FileManager.default.temporaryDirectory.appendingPathComponent("reactor tests \(name)")
    }

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
        var first: UInt8 = 0
        #expect(input.read(&first, maxLength: 1) == 1)
        var (bytes, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        #expect(input.getBuffer(&bytes, length: &count))
        #expect(Array(UnsafeBufferPointer(start: try #require(bytes), count: count)) == [2, 3])
        #expect(!input.hasBytesAvailable)
    }

    @Test func `a file URL opens a file for writing, appending and reading`() throws {
        let url = temporaryURL("żółw \(UUID())")
        defer { try? FileManager.default.removeItem(at: url) }
        for (text, append) in [("abc", false), ("def", true)] {
            let output = try #require(OutputStream(url: url, append: append))
            output.open()
            #expect(output.write(Array(text.utf8), maxLength: 3) == 3)
            output.close()
        }
        #expect(readAll(try #require(InputStream(url: url))) == Data("abcdef".utf8))
        #expect(readAll(try #require(InputStream(fileAtPath: url.path))) == Data("abcdef".utf8))
    }

    @Test func `a URL that is not a file URL yields no stream`() throws {
        let url = try #require(URL(string: "https://example.org/file"))
        #expect(InputStream(url: url) == nil && OutputStream(url: url, append: false) == nil)
    }

    @Test func `the data written to memory is readable before opening, while open and after closing`() {
        let output = OutputStream.toMemory()
        func written() -> Data? { output.property(forKey: .dataWrittenToMemoryStreamKey) as? Data }
        #expect(written() == Data())
        output.open()
        output.write([1, 2, 3], maxLength: 3)
        #expect(written() == Data([1, 2, 3]))
        output.close()
        #expect(
            output.property(forKey: .dataWrittenToMemoryStreamKey) as? NSData
                == NSData(data: Data([1, 2, 3])))
        #expect(OutputStream(toMemory: ()).property(forKey: .dataWrittenToMemoryStreamKey) is Data)
        #expect(InputStream(data: Data()).property(forKey: .dataWrittenToMemoryStreamKey) == nil)
    }

    @Test func `the file offset is set and returned as an NSNumber`() throws {
        let url = temporaryURL()
        defer { try? FileManager.default.removeItem(at: url) }
        try Data("abcdef".utf8).write(to: url)
        let input = try #require(InputStream(url: url))
        #expect(input.setProperty(NSNumber(value: 2), forKey: .fileCurrentOffsetKey))
        #expect(!input.setProperty(NSNumber(value: -2), forKey: .fileCurrentOffsetKey))
        input.open()
        #expect(input.property(forKey: .fileCurrentOffsetKey) as? NSNumber == 2)
        #expect(readAll(input) == Data("cdef".utf8))
        #expect((input.property(forKey: .fileCurrentOffsetKey) as? NSNumber)?.intValue == 6)
    }

    @Test func `opening a missing file fails with ENOENT in the POSIX domain`() throws {
        let input = try #require(InputStream(fileAtPath: "/nowhere/at all"))
        // Foundation on Linux crashes here.
        #expect(input.streamError == nil)
        input.open()
        #expect(input.streamStatus == .error)
        #expect((input.streamError as NSError?)?.code == Int(ENOENT))
        #expect((input.streamError as NSError?)?.domain == NSPOSIXErrorDomain)
        let error = try #require(input.streamError)
        #expect(error.localizedDescription.contains("No such file"))
        #expect((error as? IOError)?.errno == .noSuchFileOrDirectory)
    }

    @Test func `an unknown host fails in the CFNetwork domain`() throws {
        var input: InputStream?
        // Longer than a host name may be, so the resolver fails without asking a server.
        let name = String(repeating: "x", count: 300)
        Stream.getStreamsToHost(withName: name, port: 1, inputStream: &input, outputStream: nil)
        let stream = try #require(input)
        stream.open()
        waitUntil { stream.streamStatus == .error }
        let error = try #require(stream.streamError as NSError?)
        #expect(error.domain == "kCFErrorDomainCFNetwork" && error.code == 2)
        #expect(error.userInfo["kCFGetAddrInfoFailureKey"] is Int)
        #expect(!error.localizedDescription.isEmpty)
    }

    @Test func `getBoundStreams accepts a nil pointer for either stream`() throws {
        var input: InputStream?
        var output: OutputStream?
        Stream.getBoundStreams(withBufferSize: 16, inputStream: &input, outputStream: &output)
        let (reader, writer) = (try #require(input), try #require(output))
        reader.open()
        writer.open()
        #expect(writer.write([7], maxLength: 1) == 1)
        var byte: UInt8 = 0
        #expect(reader.read(&byte, maxLength: 1) == 1 && byte == 7)
        Stream.getBoundStreams(withBufferSize: 16, inputStream: nil, outputStream: &output)
        #expect(output !== writer)
    }

    @Test func `property keys have Cocoa's raw values`() {
        typealias Key = Stream.PropertyKey
        let names: [(Key, String)] = [
            (.dataWrittenToMemoryStreamKey, "kCFStreamPropertyDataWritten"),
            (.fileCurrentOffsetKey, "kCFStreamPropertyFileCurrentOffset"),
            (.socketNativeHandleKey, "kCFStreamPropertySocketNativeHandle"),
            (.socketSecurityLevelKey, "kCFStreamPropertySocketSecurityLevel"),
            (.socksProxyConfigurationKey, "kCFStreamPropertySOCKSProxy"),
            (.networkServiceType, "kCFStreamNetworkServiceType"),
        ]
        for (key, name) in names { #expect(key.rawValue == name && key == Key(name)) }
        // Foundation on Linux has the value of voice here.
        let signaling = StreamNetworkServiceTypeValue.callSignaling.rawValue
        #expect(signaling == "kCFStreamNetworkServiceTypeCallSignaling")
        // Foundation on Linux has "NSStreamSOCKSProxyKey" here.
        #expect(StreamSOCKSProxyConfiguration.hostKey.rawValue == "SOCKSProxy")
    }
}
