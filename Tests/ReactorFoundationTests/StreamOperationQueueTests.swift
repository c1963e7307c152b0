import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// A delegate that reads, and records the events: those that do not arrive on the queue, or before another has been handled,
/// as such.
private final class Reader: StreamDelegate, Sendable {
    let bytes = Shared<[UInt8]>([])
    let log = Shared<[String]>([])
    private let depth = Shared(0)
    private let queue: OperationQueue

    init(_ queue: OperationQueue) { self.queue = queue }

    func waitForEnd() { log.wait { $0.last == "16" ? () : nil } }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        let depth = depth.update { depth in
            depth += 1
            return depth
        }
        let isRight = OperationQueue.current === queue && depth == 1
        if eventCode == .hasBytesAvailable, let input = aStream as? InputStream {
            let read = input.read(upTo: 3)
            bytes.update { $0 += read }
        }
        if eventCode == .endEncountered { aStream.close() }
        self.depth.update { $0 -= 1 }
        log.update { $0.append("\(eventCode.rawValue)\(isRight ? "" : " misplaced")") }
    }
}

@Suite(.runLoop) struct StreamOperationQueueTests {
    @Test(arguments: [1, 4, OperationQueue.defaultMaxConcurrentOperationCount])
    func `events arrive on the queue one at a time, whatever its maximum concurrency`(maximum: Int) {
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = maximum
        let (reader, data) = (Reader(queue), Data((0..<100).map { UInt8($0) }))
        let input = InputStream(data: data)
        input.delegate = reader
        input.setDelegateQueue(queue)
        input.open()
        reader.waitForEnd()
        queue.waitUntilAllOperationsAreFinished()
        #expect(reader.bytes.value == Array(data))
        #expect(reader.log.value == ["1"] + Array(repeating: "2", count: 34) + ["16"])
    }

    @Test func `a suspended queue delays events, and drops those of a stream closed meanwhile`() {
        let queue = OperationQueue()
        queue.isSuspended = true
        let (reader, other) = (Reader(queue), Reader(queue))
        let (input, closed) = (InputStream(data: Data([1])), InputStream(data: Data([2])))
        for (stream, delegate) in [(input, reader), (closed, other)] {
            stream.delegate = delegate
            stream.setDelegateQueue(queue)
            stream.open()
        }
        waitUntil { queue.operationCount == 2 }
        #expect(reader.log.value.isEmpty)
        closed.close()
        queue.isSuspended = false
        reader.waitForEnd()
        queue.waitUntilAllOperationsAreFinished()
        #expect(reader.log.value == ["1", "2", "16"] && other.log.value.isEmpty)
    }
}
