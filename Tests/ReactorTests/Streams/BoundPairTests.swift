import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct BoundPairTests {
    @Test(arguments: [1, 3, 7, 64], [1, 2, 5, 100])
    func `written bytes are read in order on one loop`(capacity: Int, step: Int) async throws {
        try await onItsOwnThread {
            let pair = Stream.boundPair(bufferSize: capacity)
            let (reader, writer) = (Recorder(), Recorder())
            var rest = pattern(200)[...]
            reader.readsEverything(by: step)
            writer.onEvent = { stream, event in
                guard event == .hasSpaceAvailable else { return }
                let count = rest.withUnsafeBufferPointer {
                    pair.output.write($0.baseAddress!, maxLength: $0.count)
                }
                #expect(count > 0 && count <= capacity)
                rest = rest.dropFirst(count)
                if rest.isEmpty { stream.close() }
            }
            pair.input.start(reader)
            pair.output.start(writer)
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(reader.bytes == pattern(200) && reader.events.last == .endEncountered)
        }
    }

    @Test func `written bytes are read in order between two threads that wait for each other`() async throws {
        let pair = Stream.boundPair(bufferSize: 16)
        pair.input.open()
        pair.output.open()
        let output = pair.output
        nonisolated(unsafe) let writing = output
        let writer = try JoinableThread(name: "writer") {
            writing.write(pattern(50_000))
            writing.close()
        }
        var bytes: [UInt8] = []
        while case let more = pair.input.read(upTo: 13), !more.isEmpty { bytes += more }
        writer.join()
        #expect(bytes == pattern(50_000) && pair.input.streamStatus == .atEnd)
    }

    @Test func `written bytes are read in order between two loops`() async throws {
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "writer")
            let pair = Stream.boundPair(bufferSize: 10)
            let (reader, writer) = (Recorder(), Recorder())
            reader.readsEverything(by: 7)
            var rest = pattern(5000)[...]
            writer.onEvent = { stream, event in
                guard event == .hasSpaceAvailable else { return }
                let count = rest.withUnsafeBufferPointer {
                    (stream as! OutputStream).write($0.baseAddress!, maxLength: min(3, $0.count))
                }
                rest = rest.dropFirst(count)
                if rest.isEmpty { stream.close() }
            }
            pair.output.delegate = writer
            pair.output.schedule(in: thread.runLoop, forMode: .default)
            pair.output.open()
            pair.input.start(reader)
            #expect(RunLoop.current.run(in: .default) == .finished)
            thread.stop()
            #expect(reader.bytes == pattern(5000))
        }
    }

    @Test func `a bound pair reports room and bytes without a run loop`() {
        let pair = Stream.boundPair(bufferSize: 2)
        pair.output.open()
        #expect(pair.output.hasSpaceAvailable && pair.output.write([1, 2]) == 2)
        #expect(!pair.output.hasSpaceAvailable && !pair.input.hasBytesAvailable)
        pair.input.open()
        #expect(pair.input.hasBytesAvailable && pair.input.read(upTo: 1) == [1])
        #expect(pair.output.hasSpaceAvailable && pair.input.hasBytesAvailable)
    }

    @Test func `the input reads the remaining bytes, then its end, after the output closes`() {
        let pair = Stream.boundPair(bufferSize: 8)
        pair.output.open()
        pair.output.write([1, 2])
        pair.output.close()
        pair.input.open()
        #expect(pair.input.read(upTo: 8) == [1, 2] && pair.input.streamStatus == .open)
        #expect(pair.input.read(upTo: 8).isEmpty && pair.input.streamStatus == .atEnd)
    }

    @Test func `closing the input ends a write that waits for room`() async throws {
        let pair = Stream.boundPair(bufferSize: 1)
        pair.input.open()
        pair.output.open()
        pair.output.write([1])
        nonisolated(unsafe) let (input, output) = pair
        let closer = try JoinableThread(name: "closer") {
            while output.streamStatus != .writing {}
            input.close()
        }
        var byte: UInt8 = 2
        #expect(pair.output.write(&byte, maxLength: 1) == 0)
        #expect(pair.output.streamStatus == .atEnd && pair.output.streamError == nil)
        closer.join()
    }

    @Test(arguments: [0, 1, 2], [true, false])
    func `closing the input ends a scheduled output, whatever came before`(
        written: Int, isDelivered: Bool
    ) {
        let (pair, writer, loop) = (Stream.boundPair(bufferSize: 2), Recorder(), RunLoop.current)
        pair.input.open()
        pair.output.start(writer)
        pair.output.write([UInt8](repeating: 1, count: written))
        if isDelivered { loop.poll() }
        let delivered = writer.events
        pair.input.close()
        loop.serve { writer.events.last == .endEncountered }
        loop.poll()
        #expect(
            writer.events.dropFirst(delivered.count).filter { $0 != .openCompleted } == [.endEncountered])
        #expect(pair.output.streamStatus == .atEnd && pair.output.streamError == nil)
        #expect(pair.output.write([1]) == 0 && !pair.output.hasSpaceAvailable)
        #expect(loop.passesInAWhile() < 10)
    }

    @Test func `an output that opens after its input has closed is at its end`() {
        let (pair, writer) = (Stream.boundPair(bufferSize: 2), Recorder())
        pair.input.open()
        pair.input.close()
        pair.output.start(writer)
        #expect(pair.output.streamStatus == .atEnd)
        RunLoop.current.serve { writer.events == [.openCompleted, .endEncountered] }
    }

    @Test func `releasing an unopened half closes it`() {
        var pair = Optional(Stream.boundPair(bufferSize: 1))
        let (input, output) = (pair!.input, pair!.output)
        pair = nil
        output.open()
        output.write([1])
        withExtendedLifetime(input) {}
        let half = { () -> OutputStream in
            let pair = Stream.boundPair(bufferSize: 1)
            pair.output.open()
            return pair.output
        }()
        #expect(half.write([1]) == 0 && half.streamStatus == .atEnd)
    }

    @Test func `getBoundStreams returns a pair, one half, or none`() throws {
        var (input, output): (InputStream?, OutputStream?)
        Stream.getBoundStreams(withBufferSize: 4, inputStream: &input, outputStream: &output)
        output?.open()
        input?.open()
        #expect(output?.write([1]) == 1 && input?.read(upTo: 1) == [1])
        Stream.getBoundStreams(withBufferSize: 4, inputStream: &input, outputStream: nil)
        input?.open()
        #expect(input?.read(upTo: 1) == [])
        Stream.getBoundStreams(withBufferSize: 4, inputStream: nil, outputStream: nil)
    }
}
