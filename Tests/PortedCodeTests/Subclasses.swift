import ReactorFoundation

/// A subclass that passes empty data to its superclass, as multipart uploads do.
class CountdownStream: InputStream {
    private var left: Int
    private var status = Stream.Status.notOpen
    private weak var _delegate: StreamDelegate?

    init(from count: Int) {
        left = count
        super.init(data: Data())
    }

    override var streamStatus: Stream.Status { return status }
    override var streamError: Error? { return nil }
    override var hasBytesAvailable: Bool { return left > 0 }
    override var delegate: StreamDelegate? {
        get { return _delegate }
        set { _delegate = newValue }
    }
    override func open() { status = .open }
    override func close() { status = .closed }
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {}
    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {}
    override func property(forKey key: Stream.PropertyKey) -> Any? { return nil }
    override func setProperty(_ property: Any?, forKey key: Stream.PropertyKey) -> Bool { return false }
    override func getBuffer(
        _ buffer: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, length len: UnsafeMutablePointer<Int>
    ) -> Bool { return false }
    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        guard left > 0, len > 0 else { return 0 }
        buffer[0] = UInt8(left)
        left -= 1
        return 1
    }
}

/// A subclass that calls `super.init()` without data.
class WrappingStream: InputStream {
    let inner: InputStream
    init(_ inner: InputStream) {
        self.inner = inner
        super.init()
    }
    override func open() { inner.open() }
    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        return inner.read(buffer, maxLength: len)
    }
}
