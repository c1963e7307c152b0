import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamStatusTests {
    @Test func `statuses and events have Cocoa's numbers`() {
        let statuses: [Stream.Status] = [
            .notOpen, .opening, .open, .reading, .writing, .atEnd, .closed, .error,
        ]
        #expect(statuses.map(\.rawValue) == Array(0...7))
        let events: [Stream.Event] = [
            .openCompleted, .hasBytesAvailable, .hasSpaceAvailable, .errorOccurred, .endEncountered,
        ]
        #expect(events.map(\.rawValue) == [1, 2, 4, 8, 16])
        #expect(Stream.PropertyKey.fileCurrentOffsetKey.rawValue == "kCFStreamPropertyFileCurrentOffset")
        #expect(Stream.PropertyKey.writtenBytesKey.rawValue == "ReactorWrittenBytes")
    }

    @Test(arguments: StreamKind.opensAtOnce)
    func `a stream is open at once, and cannot be opened again`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        let stream = fixture.stream!
        #expect(stream.streamStatus == .notOpen)
        stream.close()
        #expect(stream.streamStatus == .notOpen)
        stream.open()
        #expect(stream.streamStatus == .open)
        stream.open()
        #expect(stream.streamStatus == .open)
        stream.close()
        #expect(stream.streamStatus == .closed)
        stream.close()
        stream.open()
        #expect(stream.streamStatus == .closed)
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream that has not failed has no error`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        #expect(fixture.stream.streamError == nil)
        fixture.stream.open()
        fixture.move(2)
        #expect(fixture.stream.streamError == nil)
        fixture.stream.close()
        #expect(fixture.stream.streamError == nil)
    }

    @Test(arguments: StreamKind.opensAtOnce)
    func `bytes are moved only between opening and closing`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        var byte: UInt8 = 0
        func move() -> Int {
            if let input = fixture.stream as? InputStream { return input.read(&byte, maxLength: 1) }
            return (fixture.stream as! OutputStream).write(&byte, maxLength: 1)
        }
        func isReady() -> Bool {
            (fixture.stream as? InputStream)?.hasBytesAvailable
                ?? (fixture.stream as! OutputStream).hasSpaceAvailable
        }
        #expect(move() == -1 && !isReady())
        fixture.stream.open()
        #expect(isReady() && move() == 1)
        fixture.stream.close()
        #expect(move() == -1 && !isReady())
    }

    @Test(arguments: StreamKind.allCases)
    func `reading or writing no bytes changes nothing`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        fixture.stream.open()
        var byte: UInt8 = 0
        for count in [0, -1] {
            if let input = fixture.stream as? InputStream {
                #expect(input.read(&byte, maxLength: count) == 0)
            } else {
                #expect((fixture.stream as! OutputStream).write(&byte, maxLength: count) == 0)
            }
            #expect(fixture.stream.streamStatus == .open)
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `properties that a stream does not have cannot be set`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        let key = Stream.PropertyKey("unknown")
        #expect(!fixture.stream.setProperty(1, forKey: key) && fixture.stream.property(forKey: key) == nil)
        fixture.stream.open()
        #expect(!fixture.stream.setProperty(1, forKey: key) && fixture.stream.property(forKey: key) == nil)
    }

    @Test func `a failed stream stays failed when it is closed`() {
        let input = InputStream(path: "/nowhere/at/all")
        input.open()
        #expect(input.streamStatus == .error)
        #expect(input.streamErrno == .noSuchFileOrDirectory)
        input.close()
        #expect(input.streamStatus == .error)
        #expect(input.streamErrno == .noSuchFileOrDirectory)
        #expect(input.read(upTo: 1).isEmpty)
    }

    @Test func `streams are equal when they are the same`() {
        let one: Stream = InputStream(data: [1])
        let other: Stream = InputStream(data: [1])
        #expect(one == one && one != other && Set([one, other, one]).count == 2)
    }
}
