import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct SerializationTests {
    private func written(_ body: (OutputStream) throws -> Int) rethrows -> Data {
        let output = OutputStream(toMemory: ())
        output.open()
        let count = try body(output)
        let data = output.property(forKey: .dataWrittenToMemoryStreamKey) as? Data ?? Data()
        #expect(count == data.count)
        return data
    }

    @Test func `JSON is written to a stream and read back`() throws {
        let object = ["numbers": [Int](0..<10_000)]
        let data = try written { try JSONSerialization.writeJSONObject(object, toStream: $0) }
        #expect(
            data == written { JSONSerialization.writeJSONObject(object, to: $0, options: [], error: nil) })
        let input = InputStream(data: data)
        input.open()
        let read = try JSONSerialization.jsonObject(with: input)
        #expect(read as? [String: [Int]] == object)
    }

    @Test func `a property list is written to a stream and read back`() throws {
        let list = ["name": "value"]
        let data = written {
            PropertyListSerialization.writePropertyList(list, to: $0, format: .xml, options: 0, error: nil)
        }
        let input = InputStream(data: data)
        input.open()
        var format = PropertyListSerialization.PropertyListFormat.binary
        let read = try PropertyListSerialization.propertyList(with: input, format: &format)
        #expect(read as? [String: String] == list && format == .xml)
    }

    @Test func `reading and writing throw the stream's error`() throws {
        expectErrno(.badFileDescriptor) {
            try JSONSerialization.jsonObject(with: InputStream(data: Data("{}".utf8)))
        }
        expectErrno(.badFileDescriptor) {
            try JSONSerialization.writeJSONObject([1], toStream: OutputStream(toMemory: ()))
        }
        let missing = InputStream(fileAtPath: "/nowhere/at/all")!
        missing.open()
        #expect(throws: IOError(.open, "/nowhere/at/all", .noSuchFileOrDirectory)) {
            try JSONSerialization.jsonObject(with: missing)
        }
        var byte: UInt8 = 0
        let full = OutputStream(toBuffer: &byte, capacity: 1)
        full.open()
        var error: NSError?
        #expect(JSONSerialization.writeJSONObject([1], to: full, options: [], error: &error) == 0)
        #expect(error?.code == Int(ENOSPC))
    }

    private static let large = ["k": [String](repeating: "0123456789", count: 12_000)]

    @Test func `all of it is written to a file on a run loop`() throws {
        let writers: [(OutputStream) throws -> Int] = [
            { try JSONSerialization.writeJSONObject(Self.large, toStream: $0) },
            { stream in
                PropertyListSerialization.writePropertyList(
                    Self.large, to: stream, format: .xml, options: 0, error: nil)
            },
        ]
        for write in writers {
            let file = try TemporaryFile("")
            let output = OutputStream(path: file.path)
            output.schedule(in: .current, forMode: .default)
            output.open()
            let counts = try [write(output), write(output)]
            output.close()
            #expect(counts[0] > 150_000 && counts[0] == counts[1])
            #expect(content(of: file.path.string)?.count == counts[0] * 2)
        }
    }

    @Test func `all of it is written through a write buffer`() throws {
        let (peer, other) = try SocketPeer.pair()
        SocketPeer.narrow(other.rawValue)
        let output = OutputStream(descriptor: other, closeWhenDone: true)
        output.writeBufferSize = 65_536
        output.schedule(in: .current, forMode: .default)
        output.open()
        let received = Answer<Int>()
        let thread = try JoinableThread { received.give(peer.receiveToEnd()?.count ?? 0) }
        let count = try JSONSerialization.writeJSONObject(Self.large, toStream: output)
        output.close()
        thread.join()
        #expect(count > 150_000 && received.wait() == count)
    }
}
