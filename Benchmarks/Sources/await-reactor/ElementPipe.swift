import Glibc
import Measuring
import Reactor
import SystemPackage

/// A pipe whose reader writes the next element.
///
/// `@unchecked Sendable` is correct: one task, or one handler, uses it.
final class ElementPipe: @unchecked Sendable {
    let readEnd: FileDescriptor
    private let writeEnd: FileDescriptor
    private let count: Int
    private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64, alignment: 16)
    private let warmUp = 100
    private var done = 0
    private var begin: (wall: Int64, processor: Int64) = (0, 0)

    init(count: Int) {
        self.count = count
        var ends: [CInt] = [0, 0]
        precondition(Glibc.pipe(&ends) == 0, "cannot open a pipe")
        for end in ends { _ = fcntl(end, F_SETFL, O_NONBLOCK) }
        (readEnd, writeEnd) = (FileDescriptor(rawValue: ends[0]), FileDescriptor(rawValue: ends[1]))
        put()
    }

    /// Reads an element and writes the next one; the last one ends the program.
    func take() {
        let number = read(readEnd.rawValue, buffer.baseAddress, buffer.count)
        precondition(number == buffer.count)
        finishElement()
    }

    func finishElement() {
        done += 1
        if done == warmUp { begin = (now(), processorTime()) }
        if done == warmUp + count { finish() }
        put()
    }

    func serve() throws {
        let source = DescriptorSource(readEnd, for: .readable) { [self] _, _ in take() }
        try RunLoop.main.add(source, forMode: .default)
    }

    nonisolated(nonsending) func consume(on loop: RunLoop) async {
        do {
            for try await _ in loop.readiness(of: readEnd, for: .readable) { take() }
        } catch {
            fatalError("\(error)")
        }
    }

    private func put() {
        let number = Glibc.write(writeEnd.rawValue, buffer.baseAddress, buffer.count)
        precondition(number == buffer.count)
    }

    private func finish() -> Never {
        let (wall, processor) = (now() - begin.wall, processorTime() - begin.processor)
        report([processor, wall].map { fixed(Double($0) / Double(count)) })
    }
}

/// Reads the pipe as a stream with a delegate.
final class DelegateReader: StreamDelegate {
    private let input: InputStream
    private let pipe: ElementPipe
    private let buffer = UnsafeMutablePointer<UInt8>.allocate(capacity: 64)

    init(_ pipe: ElementPipe) {
        self.pipe = pipe
        input = InputStream(descriptor: pipe.readEnd)
        input.delegate = self
        input.schedule(in: .main, forMode: .default)
        input.open()
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard event == .hasBytesAvailable else { return }
        precondition(input.read(buffer, maxLength: 64) == 64)
        pipe.finishElement()
    }
}

/// Lives on a loop.
actor Consumer {
    private let loop: RunLoop
    private let executor: RunLoop.Executor
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(on loop: RunLoop) { (self.loop, executor) = (loop, loop.executor()) }

    func consume(_ pipe: ElementPipe) async { await pipe.consume(on: loop) }

    func consumeChunks(_ pipe: ElementPipe) async {
        do {
            for try await _ in InputStream(descriptor: pipe.readEnd).chunks { pipe.finishElement() }
        } catch {
            fatalError("\(error)")
        }
    }
}
