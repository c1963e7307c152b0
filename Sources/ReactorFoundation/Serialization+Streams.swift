public import Foundation
public import Reactor

// Foundation's own methods take Foundation's streams. These take the streams of this library.

extension JSONSerialization {
    /// The object that the JSON text of `stream` describes.
    ///
    /// - Parameters:
    ///   - stream: An open stream, which is read to its end; waits for it.
    ///   - options: As for data.
    /// - Throws: The stream's error, `Errno.badFileDescriptor` if it is not open, or what is wrong with the text.
    public class func jsonObject(
        with stream: Reactor.InputStream, options: JSONSerialization.ReadingOptions = []
    ) throws -> Any {
        try jsonObject(with: stream.readToEnd(), options: options)
    }

    /// Writes `object` as JSON text to `stream`, waiting for room.
    ///
    /// - Returns: How many bytes were written, all of them.
    /// - Throws: The stream's error, `Errno.badFileDescriptor` if it is not open, `Errno.noSpace` if the text does not
    ///   fit, or what is wrong with the object.
    /// - Precondition: `object` can be written as JSON (`isValidJSONObject(_:)`).
    @discardableResult
    public class func writeJSONObject(
        _ object: Any, toStream stream: Reactor.OutputStream,
        options: JSONSerialization.WritingOptions = []
    ) throws -> Int {
        try stream.writeAll(data(withJSONObject: object, options: options))
    }

    /// As ``writeJSONObject(_:toStream:options:)``, in Cocoa's spelling.
    ///
    /// - Parameters:
    ///   - object: What to write.
    ///   - stream: Where to.
    ///   - options: As for data.
    ///   - error: Set if writing fails.
    /// - Returns: How many bytes were written; 0 if writing fails.
    @discardableResult
    public class func writeJSONObject(
        _ object: Any, to stream: Reactor.OutputStream, options: JSONSerialization.WritingOptions = [],
        error: UnsafeMutablePointer<NSError?>?
    ) -> Int {
        do { return try writeJSONObject(object, toStream: stream, options: options) } catch let fault {
            unsafe error?.pointee = fault as NSError
            return 0
        }
    }
}

extension PropertyListSerialization {
    /// The property list that `stream` holds.
    ///
    /// - Parameters:
    ///   - stream: An open stream, which is read to its end; waits for it.
    ///   - options: As for data.
    ///   - format: Set to the list's format.
    /// - Throws: The stream's error, `Errno.badFileDescriptor` if it is not open, or what is wrong with the list.
    public class func propertyList(
        with stream: Reactor.InputStream, options: PropertyListSerialization.ReadOptions = [],
        format: UnsafeMutablePointer<PropertyListSerialization.PropertyListFormat>?
    ) throws -> Any {
        let data = try stream.readToEnd()
        return try unsafe propertyList(from: data, options: options, format: format)
    }

    /// Writes `propertyList` to `stream`, waiting for room.
    ///
    /// - Returns: How many bytes were written; 0 if writing fails, and then `error` is set.
    @discardableResult
    public class func writePropertyList(
        _ propertyList: Any, to stream: Reactor.OutputStream,
        format: PropertyListSerialization.PropertyListFormat,
        options: PropertyListSerialization.WriteOptions, error: UnsafeMutablePointer<NSError?>?
    ) -> Int {
        do {
            return try stream.writeAll(data(fromPropertyList: propertyList, format: format, options: options))
        } catch let fault {
            unsafe error?.pointee = fault as NSError
            return 0
        }
    }
}

extension Reactor.InputStream {
    /// As many bytes as are asked for at once.
    private static let pieceSize = 65_536

    fileprivate func readToEnd() throws -> Data {
        var data = Data()
        while case let piece = read(upTo: Self.pieceSize), !piece.isEmpty { data.append(contentsOf: piece) }
        guard streamStatus == .atEnd else { throw streamError ?? Errno.badFileDescriptor }
        return data
    }
}

extension Reactor.OutputStream {
    fileprivate func writeAll(_ data: Data) throws -> Int {
        let count = write([UInt8](data))
        guard count == data.count else {
            throw streamError ?? (streamStatus == .atEnd ? Errno.noSpace : .badFileDescriptor)
        }
        return count
    }
}
