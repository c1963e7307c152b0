import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// A stream that another thread than its loop's closes, while a duplicate of its descriptor keeps the file
/// open: the kernel must not report the number any more.
@Suite(.runLoop) struct DeregistrationTests {
    enum Ending: CaseIterable {
        case close, closeLent, release, removeAndClose
    }

    @Test(arguments: Ending.allCases)
    func `a loop sleeps though bytes arrive for a stream that another thread has closed`(
        ending: Ending
    ) throws {
        let thread = try RunLoopThread(name: "served")
        let pipe = try FileDescriptor.pipe()
        let kept = try pipe.readEnd.duplicate()
        let isLent = ending == .closeLent
        try Self.end(
            InputStream(descriptor: pipe.readEnd, closeWhenDone: !isLent), of: thread.runLoop, by: ending)
        try pipe.writeEnd.writeAll([1])
        #expect(thread.runLoop.performAndWait { RunLoop.current.passesInAWhile() } < 20)
        thread.stop()
        for end in [kept, pipe.writeEnd] { try end.close() }
        if isLent { try pipe.readEnd.close() }
    }

    /// Schedules a stream on `loop`, and closes it on this thread.
    private static func end(_ stream: consuming InputStream, of loop: RunLoop, by ending: Ending) throws {
        let recorder = Recorder()
        stream.delegate = recorder
        stream.schedule(in: loop, forMode: .default)
        stream.open()
        nonisolated(unsafe) let seen = recorder
        waitUntil { loop.performAndWait { seen.events == [.openCompleted] } }
        switch ending {
        case .close, .closeLent: stream.close()
        case .release: break
        case .removeAndClose:
            stream.remove(from: loop, forMode: .default)
            stream.close()
        }
    }

    @Test func `a loop sleeps when it runs after another thread has closed its stream`()
        async throws
    {
        try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()
            let kept = try pipe.readEnd.duplicate()
            let recorder = Recorder()
            nonisolated(unsafe) let stream = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            stream.start(recorder)
            RunLoop.current.serve { recorder.events == [.openCompleted] }
            RunLoop.current.poll()
            try JoinableThread { stream.close() }.join()
            try pipe.writeEnd.writeAll([1])
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in }
            #expect(RunLoop.current.passesInAWhile() < 20)
            timer.invalidate()
            for end in [kept, pipe.writeEnd] { try end.close() }
        }
    }

    @Test func `a stream receives no event of a closed one with the same descriptor number`() throws {
        let (first, second) = (try FileDescriptor.pipe(), try FileDescriptor.pipe())
        let kept = try first.readEnd.duplicate()
        let thread = try RunLoopThread(name: "served")
        try Self.end(InputStream(descriptor: first.readEnd), of: thread.runLoop, by: .closeLent)
        #expect(dup2(second.readEnd.rawValue, first.readEnd.rawValue) == first.readEnd.rawValue)
        nonisolated(unsafe) let recorder = Recorder()
        let stream = InputStream(descriptor: first.readEnd)
        stream.delegate = recorder
        stream.schedule(in: thread.runLoop, forMode: .default)
        stream.open()
        waitUntil { thread.runLoop.performAndWait { recorder.events == [.openCompleted] } }
        try first.writeEnd.writeAll([1])
        thread.runLoop.performAndWait {
            RunLoop.current.poll()
            #expect(recorder.events == [.openCompleted])
        }
        try second.writeEnd.writeAll([2])
        waitUntil { thread.runLoop.performAndWait { recorder.count(.hasBytesAvailable) == 1 } }
        stream.close()
        thread.stop()
        for end in [kept, first.readEnd, first.writeEnd, second.readEnd, second.writeEnd] {
            try end.close()
        }
    }

    @Test
    func `closing one of two streams of a borrowed socket on another thread leaves the other its events`()
        async throws
    {
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "served")
            var pair: [CInt] = [0, 0]
            try SystemCall.make { socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &pair) }
            let (own, peer) = (pair[0], pair[1])
            let descriptor = FileDescriptor(rawValue: own)
            nonisolated(unsafe) let (reader, writer) = (Recorder(), Recorder())
            // Fills the socket, so that the loop watches it for room.
            writer.onEvent = { stream, event in
                guard event == .hasSpaceAvailable else { return }
                pattern(4_000_000).withUnsafeBufferPointer {
                    _ = (stream as! OutputStream).write($0.baseAddress!, maxLength: $0.count)
                }
            }
            nonisolated(unsafe) let input = InputStream(descriptor: descriptor)
            nonisolated(unsafe) let output = OutputStream(descriptor: descriptor)
            thread.runLoop.performAndWait {
                input.start(reader)
                output.start(writer)
            }
            waitUntil { thread.runLoop.performAndWait { writer.count(.hasSpaceAvailable) > 0 } }
            thread.runLoop.performAndWait { _ = RunLoop.current.passesInAWhile() }
            output.close()
            #expect(write(peer, "a", 1) == 1)
            waitUntil { thread.runLoop.performAndWait { reader.count(.hasBytesAvailable) == 1 } }
            input.close()
            thread.stop()
            for number in [own, peer] { close(number) }
        }
    }

    @Test func `closing a stream elsewhere leaves a source of the same lent descriptor its events`()
        async throws
    {
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "served")
            let pipe = try FileDescriptor.pipe()
            let calls = Shared(0)
            thread.runLoop.performAndWait {
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                    var byte: UInt8 = 0
                    if read(pipe.readEnd.rawValue, &byte, 1) == 1 { calls.value += 1 }
                }
                do { try RunLoop.current.add(source, forMode: .default) } catch { Issue.record(error) }
            }
            let stream = InputStream(descriptor: pipe.readEnd)
            try Self.end(stream, of: thread.runLoop, by: .closeLent)
            try pipe.writeEnd.writeAll([1])
            waitUntil { calls.value == 1 }
            thread.stop()
            for end in [pipe.readEnd, pipe.writeEnd] { try end.close() }
        }
    }
}
