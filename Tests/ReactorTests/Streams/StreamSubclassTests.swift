import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Overrides everything: the letters of the alphabet, without a source.
private final class Alphabet: InputStream {
    private var next = UInt8(ascii: "a")
    private var status = Stream.Status.notOpen
    private weak var listener: (any StreamDelegate)?

    override init() { super.init() }

    override var delegate: (any StreamDelegate)? {
        get { listener }
        set { listener = newValue }
    }
    override var streamStatus: Stream.Status { status }
    override var streamError: (any Error)? { nil }
    override var hasBytesAvailable: Bool { next <= UInt8(ascii: "z") }
    override func open() { status = .open }
    override func close() { status = .closed }
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        aRunLoop.perform(after: .zero, inModes: [mode]) { [self] in
            listener?.stream(self, handle: .hasBytesAvailable)
        }
    }
    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {}
    override func property(forKey key: Stream.PropertyKey) -> Any? { key.rawValue }
    override func setProperty(_ property: Any?, forKey key: Stream.PropertyKey) -> Bool { true }
    override func getBuffer(
        _ buffer: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, length len: UnsafeMutablePointer<Int>
    ) -> Bool { false }
    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        let count = min(len, Int(UInt8(ascii: "z") - next) + 1)
        for index in 0..<count { buffer[index] = next + UInt8(index) }
        next += UInt8(count)
        return count
    }
}

/// Counts its bytes, and is its own delegate.
private final class SelfReader: InputStream, StreamDelegate {
    var events: [Stream.Event] = []
    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        events.append(eventCode)
        if eventCode == .hasBytesAvailable { _ = read(upTo: 100) }
        if eventCode == .endEncountered { close() }
    }
}

/// Wraps another stream, and delivers that one's events as its own.
private final class Doubling: InputStream, StreamDelegate {
    private let inner: InputStream

    init(_ inner: InputStream) {
        self.inner = inner
        super.init()
        inner.delegate = self
    }

    override var streamStatus: Stream.Status { inner.streamStatus }
    override func open() { inner.open() }
    override func close() { inner.close() }
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        inner.schedule(in: aRunLoop, forMode: mode)
    }
    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        inner.remove(from: aRunLoop, forMode: mode)
    }
    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        let bytes = inner.read(upTo: len / 2)
        for (index, byte) in bytes.enumerated() {
            (buffer[2 * index], buffer[2 * index + 1]) = (byte, byte)
        }
        return 2 * bytes.count
    }
    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        delegate?.stream(self, handle: eventCode)
    }
}

private final class Sink: OutputStream {
    var taken: [UInt8] = []
    override init() { super.init() }
    required init(toMemory: ()) { super.init(toMemory: ()) }
    override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
        taken += UnsafeBufferPointer(start: buffer, count: len)
        return len
    }
}

/// Fails every write.
private final class Refusal: OutputStream {
    override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int { -1 }
}

@Suite(.runLoop) struct StreamSubclassTests {
    @Test func `a subclass may override everything`() {
        let (stream, recorder) = (Alphabet(), Recorder())
        stream.start(recorder)
        recorder.readsEverything(by: 3)
        RunLoop.current.run(in: .default)
        #expect(recorder.bytes == Array("abc".utf8))
        #expect(stream.read(upTo: 2) == Array("de".utf8))
    }

    @Test func `a stream without a delegate is its own delegate, if it can be`() {
        let (stream, recorder) = (SelfReader(data: [1, 2, 3]), Recorder())
        #expect(stream.delegate == nil)
        stream.delegate = recorder
        stream.delegate = nil
        stream.schedule(in: .current, forMode: .default)
        stream.open()
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(stream.events == [.openCompleted, .hasBytesAvailable, .endEncountered])
    }

    @Test func `a subclass may wrap another stream`() {
        let (stream, recorder) = (Doubling(InputStream(data: [1, 2, 3])), Recorder())
        recorder.readsEverything(by: 4)
        stream.start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.bytes == [1, 1, 2, 2, 3, 3])
    }

    @Test func `a subclass of an output stream inherits the initializers in memory`() {
        let sink = Sink()
        sink.open()
        #expect(sink.write([1, 2]) == 2 && sink.taken == [1, 2])
        let other = Sink.toMemory()
        #expect(other.write([3]) == 1 && other.taken == [3])
    }

    @Test func `a subclass may fail to write without having been opened`() async {
        await #expect(processExitsWith: .success) {
            try #require(Refusal().write([1]) == 0 && Refusal().write("text") == 0)
        }
    }
}
