import CReactorLinux
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What can be watched, and what cannot.
@Suite(.runLoop) struct DescriptorKindTests {
    private let loop = RunLoop.current

    @Test(arguments: Channel.allCases)
    func `a reader is readable while a byte is there, a writer with room is writable again and again`(
        channel: Channel
    ) throws {
        let (reader, writer) = try channel.open()
        var (readerCalls, writerCalls): ([Readiness], [Readiness]) = ([], [])
        let readable = DescriptorSource(reader, for: .readable) { source, readiness in
            readerCalls.append(readiness)
            #expect(source.descriptor.readOne() == 42)
        }
        let writable = DescriptorSource(writer, for: .writable) { writerCalls.append($1) }
        try loop.add(writable, forMode: .custom)
        for _ in 0..<3 { loop.poll(.custom) }
        #expect(writerCalls == [.writable, .writable, .writable])
        try loop.add(readable, forMode: .default)
        loop.poll()
        #expect(readerCalls.isEmpty)
        try writer.writeAll([42])
        #expect(loop.run(mode: .default, before: .minutesAway))
        loop.poll()
        #expect(readerCalls == [.readable])
        for source in [readable, writable] { source.cancel() }
        for end in [reader, writer] { try end.close() }
    }

    @Test(arguments: ["/proc/self/exe", "/tmp", "/dev/null"])
    func `what the kernel does not watch is refused, and leaves nothing behind`(path: String) throws {
        let file = try FileDescriptor.open(FilePath(path), .readOnly)
        let source = DescriptorSource(file, for: .readable) { _, _ in Issue.record("called") }
        for mode in [RunLoop.Mode.default, .common, .custom] {
            #expect(throws: IOError(.watch, "descriptor \(file.rawValue)", .notPermitted)) {
                try loop.add(source, forMode: mode)
            }
            #expect(!loop.contains(source, forMode: mode))
        }
        #expect(source.isValid)
        #expect(loop.poll() == .finished)
        try file.close()
    }

    @Test func `a number that is not open is refused`() throws {
        // Far from the numbers that other tests open meanwhile.
        let source = DescriptorSource(FileDescriptor(rawValue: 1_000_000), for: .readable) { _, _ in }
        expectErrno(.badFileDescriptor) { try loop.add(source, forMode: .default) }
        #expect(loop.poll() == .finished)
    }

    @Test func `a hang-up is delivered to a reader after the remaining bytes`() throws {
        let pipe = try FileDescriptor.pipe()
        var bytes: [UInt8?] = []
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
            bytes.append(source.descriptor.readOne())
            if bytes.last == .some(nil) { source.cancel() }
        }
        try loop.add(source, forMode: .default)
        try pipe.writeEnd.writeAll([1, 2])
        try pipe.writeEnd.close()
        #expect(loop.run(in: .default) == .finished)
        #expect(bytes == [1, 2, nil])
        try pipe.readEnd.close()
    }

    @Test(arguments: [Readiness.readable, .writable, [.readable, .writable]])
    func `an error is delivered as the readiness that a source is interested in`(interest: Readiness) throws {
        let pipe = try FileDescriptor.pipe()
        try pipe.readEnd.close()
        var calls: [Readiness] = []
        let source = DescriptorSource(pipe.writeEnd, for: interest) { source, readiness in
            calls.append(readiness)
            source.cancel()
        }
        try loop.add(source, forMode: .default)
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == [interest])
        try pipe.writeEnd.close()
    }
}
