// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Core Foundation's spellings of streams, which clients use beside Cocoa's. Foundation on Linux exports none of them.

public import Dispatch
public import Foundation
public import Reactor

// MARK: Types

/// `InputStream`.
public typealias CFReadStream = Reactor.InputStream
/// `OutputStream`.
public typealias CFWriteStream = Reactor.OutputStream
/// `Stream.PropertyKey`.
public typealias CFStreamPropertyKey = Reactor.Stream.PropertyKey
/// The status of a stream: a type of its own with the values of `Stream.Status`.
public enum CFStreamStatus: CFIndex, Sendable {
    /// Not opened yet.
    case notOpen
    /// Being opened.
    case opening
    /// Open.
    case open
    /// Inside a read.
    case reading
    /// Inside a write.
    case writing
    /// At the end of the input, or no space left for output.
    case atEnd
    /// Closed.
    case closed
    /// Failed.
    case error

    init(_ status: Reactor.Stream.Status) {
        self = CFStreamStatus(rawValue: CFIndex(status.rawValue)) ?? .error
    }
}

// MARK: Pairs of streams

/// `Stream.getStreamsToHost(withName:port:inputStream:outputStream:)`.
public func CFStreamCreatePairWithSocketToHost(
    _ allocator: CFAllocator?, _ host: CFString, _ port: UInt32,
    _ readStream: UnsafeMutablePointer<Unmanaged<CFReadStream>?>?,
    _ writeStream: UnsafeMutablePointer<Unmanaged<CFWriteStream>?>?
) {
    guard let port = UInt16(exactly: port) else {
        fatalError("CFStreamCreatePairWithSocketToHost: a port must be in 0...65535.")
    }
    let connection = Connection(toHost: host as String, port: port, options: .pair)
    unsafe store(connection.streams, in: readStream, writeStream)
}

/// Creates a pair over a connected socket. Closing both streams leaves the socket open unless
/// `kCFStreamPropertyShouldCloseNativeSocket` is true.
public func CFStreamCreatePairWithSocket(
    _ allocator: CFAllocator?, _ socket: CInt,
    _ readStream: UnsafeMutablePointer<Unmanaged<CFReadStream>?>?,
    _ writeStream: UnsafeMutablePointer<Unmanaged<CFWriteStream>?>?
) {
    let connection = Connection(
        descriptor: FileDescriptor(rawValue: socket), closeWhenDone: false, options: .pair)
    unsafe store(connection.streams, in: readStream, writeStream)
}

/// `Stream.getBoundStreams(withBufferSize:inputStream:outputStream:)`.
public func CFStreamCreateBoundPair(
    _ allocator: CFAllocator?,
    _ readStream: UnsafeMutablePointer<Unmanaged<CFReadStream>?>?,
    _ writeStream: UnsafeMutablePointer<Unmanaged<CFWriteStream>?>?, _ transferBufferSize: Int
) {
    unsafe store(CFReadStream.boundPair(bufferSize: transferBufferSize), in: readStream, writeStream)
}

private func store(
    _ pair: (input: CFReadStream, output: CFWriteStream),
    in readStream: UnsafeMutablePointer<Unmanaged<CFReadStream>?>?,
    _ writeStream: UnsafeMutablePointer<Unmanaged<CFWriteStream>?>?
) {
    // Retaining a stream that the caller does not receive would leak it.
    if let readStream = unsafe readStream { unsafe readStream.pointee = .passRetained(pair.input) }
    if let writeStream = unsafe writeStream { unsafe writeStream.pointee = .passRetained(pair.output) }
}

// MARK: Reading

/// Opens the stream. Returns false if it was not new or failed at once.
@discardableResult
public func CFReadStreamOpen(_ stream: CFReadStream!) -> Bool { open(stream) }
/// `close()`.
public func CFReadStreamClose(_ stream: CFReadStream!) { stream.close() }
/// `streamStatus`.
public func CFReadStreamGetStatus(_ stream: CFReadStream!) -> CFStreamStatus {
    CFStreamStatus(stream.streamStatus)
}
/// `streamError`.
public func CFReadStreamCopyError(_ stream: CFReadStream!) -> (any Error)! { stream.streamError }
/// `hasBytesAvailable`.
public func CFReadStreamHasBytesAvailable(_ stream: CFReadStream!) -> Bool { stream.hasBytesAvailable }
/// `read(_:maxLength:)`.
public func CFReadStreamRead(
    _ stream: CFReadStream!, _ buffer: UnsafeMutablePointer<UInt8>!, _ bufferLength: Int
) -> Int { unsafe stream.read(buffer, maxLength: bufferLength) }
/// `property(forKey:)`.
public func CFReadStreamCopyProperty(_ stream: CFReadStream!, _ propertyName: CFStreamPropertyKey!) -> Any! {
    stream.property(forKey: propertyName)
}
/// `setProperty(_:forKey:)`.
@discardableResult
public func CFReadStreamSetProperty(
    _ stream: CFReadStream!, _ propertyName: CFStreamPropertyKey!, _ propertyValue: Any!
) -> Bool { stream.setProperty(propertyValue, forKey: propertyName) }
/// `setDispatchQueue(_:)`.
public func CFReadStreamSetDispatchQueue(_ stream: CFReadStream!, _ queue: DispatchQueue!) {
    stream.setDispatchQueue(queue)
}

// MARK: Writing

/// Opens the stream. Returns false if it was not new or failed at once.
@discardableResult
public func CFWriteStreamOpen(_ stream: CFWriteStream!) -> Bool { open(stream) }
/// `close()`.
public func CFWriteStreamClose(_ stream: CFWriteStream!) { stream.close() }
/// `streamStatus`.
public func CFWriteStreamGetStatus(_ stream: CFWriteStream!) -> CFStreamStatus {
    CFStreamStatus(stream.streamStatus)
}
/// `streamError`.
public func CFWriteStreamCopyError(_ stream: CFWriteStream!) -> (any Error)! { stream.streamError }
/// `hasSpaceAvailable`.
public func CFWriteStreamCanAcceptBytes(_ stream: CFWriteStream!) -> Bool { stream.hasSpaceAvailable }
/// `write(_:maxLength:)`.
@discardableResult
public func CFWriteStreamWrite(
    _ stream: CFWriteStream!, _ buffer: UnsafePointer<UInt8>!, _ bufferLength: Int
) -> Int { unsafe stream.write(buffer, maxLength: bufferLength) }
/// `property(forKey:)`.
public func CFWriteStreamCopyProperty(_ stream: CFWriteStream!, _ propertyName: CFStreamPropertyKey!) -> Any!
{
    stream.property(forKey: propertyName)
}
/// `setProperty(_:forKey:)`.
@discardableResult
public func CFWriteStreamSetProperty(
    _ stream: CFWriteStream!, _ propertyName: CFStreamPropertyKey!, _ propertyValue: Any!
) -> Bool { stream.setProperty(propertyValue, forKey: propertyName) }
/// `setDispatchQueue(_:)`.
public func CFWriteStreamSetDispatchQueue(_ stream: CFWriteStream!, _ queue: DispatchQueue!) {
    stream.setDispatchQueue(queue)
}

private func open(_ stream: Reactor.Stream) -> Bool {
    let isNew = stream.streamStatus == .notOpen
    stream.open()
    return isNew && stream.streamStatus != .error
}
