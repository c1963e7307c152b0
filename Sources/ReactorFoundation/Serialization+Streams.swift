public import Foundation
public import Reactor

// Foundation's own methods take Foundation's streams. These overloads take Reactor's.

extension JSONSerialization {
    /// Reads `stream` to its end and returns the object that the JSON text describes. Blocks until the stream
    /// ends.
    ///
    /// - Parameters:
    ///   - stream: An open stream.
    ///   - options: The options of `jsonObject(with:options:)` for `Data`.
    /// - Throws: The stream's error; `Errno.badFileDescriptor` if the stream is not open; or the parser's
    ///   error.
    public class func jsonObject(
        with stream: Reactor.InputStream, options: JSONSerialization.ReadingOptions = []
    ) throws -> Any {
        try jsonObject(with: stream.readToEnd(), options: options)
    }

    /// Writes `object` as JSON text to `stream`. Blocks until all of it is written.
    ///
    /// - Returns: The number of bytes written.
    /// - Throws: The stream's error; `Errno.badFileDescriptor` if the stream is not open; `Errno.noSpace` if
    ///   the text does not fit; or the encoder's error.
    /// - Precondition: `isValidJSONObject(object)` is true.
    @discardableResult
    public class func writeJSONObject(
        _ object: Any, toStream stream: Reactor.OutputStream,
        options: JSONSerialization.WritingOptions = []
    ) throws -> Int {
        try stream.writeAll(data(withJSONObject: object, options: options))
    }

    /// Writes `object` as JSON text to `stream`, like ``writeJSONObject(_:toStream:options:)``; this is
    /// Cocoa's signature.
    ///
    /// - Parameters:
    ///   - object: The object to write.
    ///   - stream: An open stream.
    ///   - options: The options of `data(withJSONObject:options:)`.
    ///   - error: Set if writing fails.
    /// - Returns: The number of bytes written; 0 if writing fails.
    @discardableResult
    public class func writeJSONObject(
        _ object: Any, to stream: Reactor.OutputStream, options: JSONSerialization.WritingOptions = [],
        error: UnsafeMutablePointer<NSError?>?
    ) -> Int {
        do { return try writeJSONObject(object, toStream: stream, options: options) } catch let failure {
            unsafe error?.pointee = failure as NSError
            return 0
        }
    }
}

extension PropertyListSerialization {
    /// Reads `stream` to its end and returns the property list in it. Blocks until the stream ends.
    ///
    /// - Parameters:
    ///   - stream: An open stream.
    ///   - options: The options of `propertyList(from:options:format:)`.
    ///   - format: Set to the format of the property list.
    /// - Throws: The stream's error; `Errno.badFileDescriptor` if the stream is not open; or the parser's
    ///   error.
    public class func propertyList(
        with stream: Reactor.InputStream, options: PropertyListSerialization.ReadOptions = [],
        format: UnsafeMutablePointer<PropertyListSerialization.PropertyListFormat>?
    ) throws -> Any {
        let data = try stream.readToEnd()
        return try unsafe propertyList(from: data, options: options, format: format)
    }

    /// Writes `propertyList` to `stream`. Blocks until all of it is written.
    ///
    /// - Returns: The number of bytes written; 0 if writing fails, with `error` set.
    @discardableResult
    public class func writePropertyList(
        _ propertyList: Any, to stream: Reactor.OutputStream,
        format: PropertyListSerialization.PropertyListFormat,
        options: PropertyListSerialization.WriteOptions, error: UnsafeMutablePointer<NSError?>?
    ) -> Int {
        do {
            return try stream.writeAll(data(fromPropertyList: propertyList, format: format, options: options))
        } catch let failure {
            unsafe error?.pointee = failure as NSError
            return 0
        }
    }
}

extension Reactor.InputStream {
    private static let chunkSize = 65_536

    fileprivate func readToEnd() throws -> Data {
        var data = Data()
        while case let chunk = read(upTo: Self.chunkSize), !chunk.isEmpty { data.append(contentsOf: chunk) }
        guard streamStatus == .atEnd else { throw streamError ?? Errno.badFileDescriptor }
        return data
    }
}

extension Reactor.OutputStream {
    /// Writes all of `data`. On a run loop a file, and a stream with a write buffer, accepts only what fits:
    /// flushing makes room.
    fileprivate func writeAll(_ data: Data) throws -> Int {
        guard streamStatus != .notOpen else { throw Errno.badFileDescriptor }
        var rest = [UInt8](data)[...]
        rest.removeFirst(write(rest))
        while !rest.isEmpty {
            if streamStatus != .atEnd { try flushAndWait() }
            let count = write(rest)
            guard count > 0 else {
                throw streamError ?? (streamStatus == .atEnd ? Errno.noSpace : .badFileDescriptor)
            }
            rest.removeFirst(count)
        }
        return data.count
    }
}
