import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// A delegate that reads, and records the events and whether they arrive on the queue, one at a time.
private final class Reader: StreamDelegate, Sendable {
    struct Record {
        var bytes: [UInt8] = []
        var events: [UInt] = []
        var hasLeftQueue = false
        var depth = 0
        var overlaps = 0
        var hasEnded = false
    }

    let record = Shared(Record())

    func waitForEnd() { record.wait { $0.hasEnded ? () : nil } }

    private let queue: OperationQueue

    init(_ queue: OperationQueue) { self.queue = queue }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        let isOnQueue = OperationQueue.current === queue
        record.update { record in
            record.events.append(eventCode.rawValue)
            record.hasLeftQueue = record.hasLeftQueue || !isOnQueue
            record.overlaps += record.depth
            record.depth += 1
        }
        if eventCode == .hasBytesAvailable, let input = aStream as? InputStream {
            let bytes = input.read(upTo: 3)
            record.update { $0.bytes += bytes }
        }
        if eventCode == .endEncountered { aStream.close() }
        record.update { record in
            record.depth -= 1
            record.hasEnded = eventCode == .endEncountered
        }
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
        #expect(reader.record.value.bytes == Array(data))
        #expect(reader.record.value.events == [1] + Array(repeating: 2, count: 34) + [16])
        #expect(!reader.record.value.hasLeftQueue && reader.record.value.overlaps == 0)
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
        #expect(reader.record.value.events.isEmpty)
        closed.close()
        queue.isSuspended = false
        reader.waitForEnd()
        queue.waitUntilAllOperationsAreFinished()
        #expect(reader.record.value.events == [1, 2, 16] && other.record.value.events.isEmpty)
    }
}
