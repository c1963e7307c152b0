import Dispatch
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// A client that reconnects inside the error callback.
private final class ReconnectingClient: NSObject, StreamDelegate {
    private let port: Int
    private(set) var attempts = 0
    private(set) var isConnected = false
    private var input: InputStream?
    private var output: OutputStream?

    init(port: Int) { self.port = port }

    func connect() {
        attempts += 1
        Stream.getStreamsToHost(
            withName: "127.0.0.1", port: attempts < 4 ? 1 : port, inputStream: &input, outputStream: &output)
        input!.delegate = self
        input!.schedule(in: .current, forMode: .common)
        input!.open()
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        guard aStream == input else { return }
        switch eventCode {
        case .openCompleted: isConnected = true
        case .errorOccurred:
            aStream.close()
            aStream.remove(from: .current, forMode: .common)
            connect()
        default: break
        }
    }

    deinit {
        input?.delegate = nil
        input?.close()
        output?.close()
    }
}

/// A delegate whose `deinit`, on any thread, closes a stream that a loop still serves.
private final class Subscriber: NSObject, StreamDelegate {
    private let input: InputStream
    private let loop: RunLoop
    let eventCount = Shared(0)

    init(_ input: InputStream, on loop: RunLoop) {
        (self.input, self.loop) = (input, loop)
        super.init()
        input.delegate = self
        input.open()
        input.schedule(in: loop, forMode: .default)
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) { eventCount.update { $0 += 1 } }

    deinit {
        input.remove(from: loop, forMode: .default)
        input.close()
    }
}

/// An operation that writes a value with blocking writes.
private final class WriteOperation: Operation, @unchecked Sendable {
    private let value: Data
    private let output: OutputStream

    init(_ value: Data, to output: OutputStream) {
        (self.value, self.output) = (value, output)
        super.init()
    }

    override func main() {
        value.withUnsafeBytes { (bytes: UnsafeRawBufferPointer) in
            var (start, left) = (bytes.bindMemory(to: UInt8.self).baseAddress!, bytes.count)
            while left > 0, !isCancelled {
                let count = output.write(start, maxLength: left)
                if count <= 0 { return }
                start += count
                left -= count
            }
        }
        output.close()
    }
}

@Suite(.runLoop) struct BehaviourTests {
    @Test func `a client reconnects inside the error callback`() throws {
        let listener = try Listener(SocketAddress.ipv4Loopback(port: 0)) { _, _ in }
        try RunLoop.current.add(listener, forMode: .default)
        let client = ReconnectingClient(port: Int(listener.localAddress.port ?? 0))
        client.connect()
        while !client.isConnected, RunLoop.current.run(mode: .default, before: .distantFuture) {}
        #expect(client.attempts == 4)
        listener.close()
    }

    @Test func `an operation writes a large value that another thread reads`() {
        var pair: (InputStream?, OutputStream?)
        Stream.getBoundStreams(withBufferSize: 4096, inputStream: &pair.0, outputStream: &pair.1)
        let (input, output) = (pair.0!, pair.1!)
        let value = Data((0..<230_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })
        let queue = OperationQueue()
        input.open()
        output.open()
        queue.addOperation(WriteOperation(value, to: output))
        var received = Data()
        var buffer = [UInt8](repeating: 0, count: 1000)
        while case let count = input.read(&buffer, maxLength: buffer.count), count > 0 {
            received.append(buffer, count: count)
        }
        #expect(received == value)
        queue.waitUntilAllOperationsAreFinished()
    }

    @Test func `a stream that is scheduled after a read delivers its remaining bytes`() {
        final class Rest: NSObject, StreamDelegate {
            var bytes: [UInt8] = []
            func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
                if eventCode == .hasBytesAvailable { bytes += (aStream as! InputStream).read(upTo: 10) }
                if eventCode == .endEncountered { aStream.close() }
            }
        }
        let (input, rest) = (InputStream(data: "headrest".data(using: .utf8)!), Rest())
        input.open()
        #expect(input.read(upTo: 4) == Array("head".utf8))
        input.delegate = rest
        input.schedule(in: .current, forMode: .default)
        while RunLoop.current.run(mode: .default, before: .distantFuture) {}
        #expect(rest.bytes == Array("rest".utf8))
    }

    @Test func `a delegate may close its stream in its deinit on another thread`() throws {
        let thread = try RunLoopThread(name: "served")
        for _ in 0..<50 {
            weak var stream: InputStream?
            do {
                let input = InputStream(data: Data([1]))
                stream = input
                let subscriber = Subscriber(input, on: thread.runLoop)
                waitUntil { subscriber.eventCount.value > 0 }
            }
            waitUntil { stream == nil }
        }
        thread.stop()
    }
}
