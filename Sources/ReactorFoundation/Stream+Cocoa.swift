public import Foundation
public import Reactor

extension Reactor.Stream {
    /// Delivers the stream's events as operations of `queue`, and removes the stream from its run loops. Nil
    /// removes the stream from its queue.
    ///
    /// Events arrive in order and one at a time, whatever the queue's `maxConcurrentOperationCount`. A
    /// suspended queue delays them. Otherwise like `setDispatchQueue(_:)`.
    public func setDelegateQueue(_ queue: OperationQueue?) {
        guard let queue else { return setQueue(nil) }
        setQueue({ block in queue.addOperation(block) }, usesWorkers: queue !== OperationQueue.main)
    }
}

// MARK: - Files

extension Reactor.InputStream {
    /// Creates a stream that reads the file at `url`; nil if `url` is not a file URL.
    ///
    /// A missing file is reported when the stream is opened.
    public convenience init?(url: URL) {
        guard let path = url.systemPath else { return nil }
        self.init(path: path)
    }
}

extension Reactor.OutputStream {
    /// Creates a stream that writes the file at `url`; nil if `url` is not a file URL.
    ///
    /// Opening the stream creates the file if it is missing, and truncates it unless `shouldAppend` is true.
    public convenience init?(url: URL, append shouldAppend: Bool) {
        guard let path = url.systemPath else { return nil }
        self.init(path: path, append: shouldAppend)
    }
}

extension URL {
    /// The path's bytes, which need not be valid UTF-8.
    fileprivate var systemPath: FilePath? {
        guard isFileURL else { return nil }
        return unsafe withUnsafeFileSystemRepresentation { path in
            unsafe path.map { unsafe FilePath(platformString: $0) }
        }
    }
}

// MARK: - Properties

// Only properties whose values are Foundation types appear here: Swift's numbers and strings cast to
// Foundation's.

extension Reactor.Stream.PropertyKey {
    /// A `Data` or `NSData`: the bytes written to a memory stream so far. Readable after the stream is
    /// closed.
    public static let dataWrittenToMemoryStreamKey = Self("kCFStreamPropertyDataWritten")

    /// A `Data` of four bytes: the socket's descriptor number. Nil before the stream has a socket and after
    /// it is closed.
    public static let socketNativeHandleKey = Self("kCFStreamPropertySocketNativeHandle")
}

extension StreamProperties: StreamPropertyBridge {
    package static func property(_ key: Reactor.Stream.PropertyKey, of stream: Reactor.Stream) -> Any? {
        switch key {
        case .dataWrittenToMemoryStreamKey:
            (stream.property(forKey: .writtenBytesKey) as? [UInt8]).map { Data($0) }
        case .socketNativeHandleKey:
            stream.socketDescriptor.map { descriptor in
                unsafe withUnsafeBytes(of: descriptor.rawValue) { unsafe Data($0) }
            }
        default: nil
        }
    }
}
