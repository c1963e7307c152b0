import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// When `fileCurrentOffsetKey` can be set, and what happens when it cannot.
@Suite(.runLoop) struct FileOffsetTests {
    private let key = Stream.PropertyKey.fileCurrentOffsetKey
    private let folder = TemporaryFolder()

    @Test(arguments: [true, false])
    func `a descriptor that appends has no offset to set`(isOpen: Bool) throws {
        let path = try folder.file([1, 2, 3])
        let file = try FileDescriptor.open(path, .writeOnly, options: [.append])
        let output = OutputStream(descriptor: file, closeWhenDone: true)
        if isOpen { output.open() }
        #expect(!output.setProperty(0, forKey: key))
        output.open()
        #expect(output.write([4]) == 1)
        output.close()
        #expect(try content(of: path) == [1, 2, 3, 4])
    }

    @Test func `a descriptor that was set to append after opening has no offset to set`() throws {
        let file = try FileDescriptor.open(try folder.file([1, 2, 3]), .writeOnly)
        let output = OutputStream(descriptor: file, closeWhenDone: true)
        output.open()
        #expect(output.setProperty(1, forKey: key))
        #expect(fcntl(file.rawValue, F_SETFL, O_APPEND) == 0)
        #expect(!output.setProperty(0, forKey: key))
    }

    @Test func `a descriptor that appends can be read from any offset`() throws {
        let file = try FileDescriptor.open(
            try folder.file([1, 2, 3]), .readWrite, options: [.append])
        let input = InputStream(descriptor: file, closeWhenDone: true)
        #expect(input.setProperty(2, forKey: key))
        input.open()
        #expect(input.read(upTo: 9) == [3])
    }

    @Test(arguments: StreamKind.allCases.filter { $0 != .file && $0 != .outputFile }, [true, false])
    func `only regular files have an offset to set`(kind: StreamKind, isOpen: Bool) throws {
        let fixture = try Fixture(kind)
        if isOpen { fixture.stream.open() }
        #expect(!fixture.stream.setProperty(0, forKey: key))
        fixture.stream.open()
        #expect(!fixture.stream.setProperty(0, forKey: key))
    }

    @Test func `a FIFO's path has no offset to set`() {
        let fifo = folder.fifo()
        #expect(!InputStream(path: fifo).setProperty(0, forKey: key))
        #expect(!OutputStream(path: fifo).setProperty(0, forKey: key))
    }

    @Test func `a path that becomes a FIFO after its offset was set fails to open`() throws {
        let input = InputStream(path: folder.path.appending("fifo"))
        #expect(input.setProperty(1, forKey: key))
        _ = folder.fifo()
        input.open()
        #expect(input.streamErrno == .illegalSeek)
    }

    @Test(arguments: [StreamKind.file, .outputFile])
    func `a closed stream keeps its offset, which cannot be set`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        fixture.stream.open()
        fixture.move(2)
        fixture.stream.close()
        #expect(!fixture.stream.setProperty(0, forKey: key))
        #expect(fixture.stream.property(forKey: key) as? Int == 2)
    }

    @Test func `the offset of a stream at its end, or failed, cannot be set`() throws {
        let input = InputStream(path: try folder.file([1]))
        input.open()
        #expect(input.read(upTo: 2) == [1] && input.read(upTo: 2) == [])
        #expect(input.streamStatus == .atEnd && !input.setProperty(0, forKey: key))
        let missing = InputStream(path: folder.path.appending("missing"))
        missing.open()
        #expect(!missing.setProperty(0, forKey: key))
    }

    @Test(arguments: [Int64.min, -1])
    func `a negative offset is refused`(offset: Int64) throws {
        let path = try folder.file([1, 2])
        for stream in [InputStream(path: path), OutputStream(path: path)] as [Stream] {
            #expect(!stream.setProperty(offset, forKey: key))
            stream.open()
            #expect(!stream.setProperty(offset, forKey: key))
        }
    }
}
