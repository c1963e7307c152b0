import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct BoundPairTests {
    private let reader = Recorder()
    private let writer = Recorder()
    private let loop = RunLoop.current

    @Test(arguments: [1, 3, 7, 64], [1, 2, 5, 100])
    func `written bytes are read in order on one loop`(capacity: Int, step: Int) {
        let pair = Stream.boundPair(bufferSize: capacity)
        var rest = pattern(200)[...]
        reader.readsEverything(by: step)
        writer.onEvent = { stream, event in
            guard event == .hasSpaceAvailable else { return }
            let count = pair.output.writeOnce(rest)
            #expect((1...capacity).contains(count))
            rest = rest.dropFirst(count)
            if rest.isEmpty { stream.close() }
        }
        pair.input.start(reader)
        pair.output.start(writer)
        #expect(loop.run(in: .default) == .finished)
        #expect(reader.bytes == pattern(200) && reader.events.last == .endEncountered)
    }

    @Test func `written bytes are read in order between two threads that wait for each other`() throws {
        let (input, output) = Stream.boundPair(bufferSize: 16)
        for stream in [input, output] { stream.open() }
        let (writing, count) = (Carrier(output), Shared(0))
        let thread = try JoinableThread(name: "writer") {
            count.value = writing.value.write(pattern(50_000))
            writing.value.close()
        }
        var bytes: [UInt8] = []
        while case let more = input.read(upTo: 13), !more.isEmpty { bytes += more }
        thread.join()
        #expect(bytes == pattern(50_000) && count.value == 50_000 && input.streamStatus == .atEnd)
    }

    @Test func `a bound pair reports room and bytes without a run loop, and ends after the last byte`() {
        let pair = Stream.boundPair(bufferSize: 2)
        pair.output.open()
        #expect(pair.output.hasSpaceAvailable && pair.output.write([1, 2]) == 2)
        #expect(!pair.output.hasSpaceAvailable && !pair.input.hasBytesAvailable)
        pair.input.open()
        #expect(pair.input.hasBytesAvailable && pair.input.read(upTo: 1) == [1])
        #expect(pair.output.hasSpaceAvailable && pair.input.hasBytesAvailable)
        pair.output.close()
        #expect(pair.input.read(upTo: 8) == [2] && pair.input.streamStatus == .open)
        #expect(pair.input.read(upTo: 8).isEmpty && pair.input.streamStatus == .atEnd)
    }

    @Test(arguments: [true, false])
    func `closing the input ends a read or write that waits`(reads: Bool) throws {
        let pair = Stream.boundPair(bufferSize: 1)
        for stream in [pair.input, pair.output] { stream.open() }
        if !reads { _ = pair.output.write([1]) }
        let waiting = Carrier((input: pair.input, stream: reads ? pair.input as Stream : pair.output))
        let closer = try JoinableThread(name: "closer") {
            waitUntil { waiting.value.stream.streamStatus == (reads ? .reading : .writing) }
            waiting.value.input.close()
        }
        if reads {
            var byte: UInt8 = 0
            #expect(pair.input.read(&byte, maxLength: 1) == -1 && pair.input.streamStatus == .closed)
        } else {
            #expect(pair.output.writeOnce([2]) == 0 && pair.output.streamStatus == .atEnd)
        }
        closer.join()
        #expect(pair.input.streamError == nil && pair.output.streamError == nil)
    }

    @Test(arguments: [0, 1, 2], [true, false])
    func `closing the input ends a scheduled output, whatever came before`(written: Int, isDelivered: Bool) {
        let pair = Stream.boundPair(bufferSize: 2)
        pair.input.open()
        pair.output.start(writer)
        _ = pair.output.write([UInt8](repeating: 1, count: written))
        if isDelivered { loop.settle() }
        let delivered = writer.events.count
        pair.input.close()
        loop.serve { writer.events.last == .endEncountered }
        loop.settle()
        #expect(writer.events.dropFirst(delivered).filter { $0 != .openCompleted } == [.endEncountered])
        #expect(pair.output.streamStatus == .atEnd && pair.output.streamError == nil)
        #expect(pair.output.write([1]) == 0 && !pair.output.hasSpaceAvailable)
        #expect(loop.passesInAWhile() < 10)
    }

    @Test(arguments: [true, false])
    func `an output whose input was closed or released before the opening is at its end`(isReleased: Bool) {
        var pair = Optional(Stream.boundPair(bufferSize: 1))
        let output = pair!.output
        if isReleased { pair = nil }
        pair?.input.open()
        pair?.input.close()
        output.start(writer)
        #expect(output.write([1]) == 0 && output.streamStatus == .atEnd)
        loop.serve { writer.events == [.openCompleted, .endEncountered] }
    }

    @Test func `bytes that were written before a pair fails are delivered before its error`() {
        let buffer = BoundBuffer(capacity: 100)
        let (input, output) = (InputStream(reading: buffer), OutputStream(writing: buffer))
        for stream in [input, output] { stream.open() }
        #expect(output.write([1, 2]) == 2)
        buffer.fail(Errno.ioError)
        reader.readsEverything()
        input.start(reader)
        #expect(loop.run(in: .default) == .finished)
        #expect(reader.bytes == [1, 2] && reader.events.last == .errorOccurred)
    }

    @Test func `getBoundStreams returns a pair, one half, or none`() {
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
