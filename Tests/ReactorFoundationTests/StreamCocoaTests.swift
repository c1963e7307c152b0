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
        #expect(error.userInfo["kCFGetAddrInfoFailureKey"] is Int && !error.localizedDescription.isEmpty)
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
