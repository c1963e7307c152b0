extension Stream {
    /// The state of a stream. The values are Cocoa's.
    public enum Status: UInt, Sendable {
        /// Not opened yet.
        case notOpen = 0
        /// Being opened.
        case opening = 1
        /// Open, and idle.
        case open = 2
        /// Inside a read.
        case reading = 3
        /// Inside a write.
        case writing = 4
        /// No bytes are left to read, or no room to write.
        case atEnd = 5
        /// Closed.
        case closed = 6
        /// Failed. Remains after closing.
        case error = 7
    }

    /// An event of a stream. The bits are Cocoa's; events that come together are delivered in their
    /// order.
    public struct Event: OptionSet, Sendable, Hashable {
        /// The bits.
        public let rawValue: UInt

        /// Creates a set from its bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// The stream has opened. Delivered once, before any other event but an error.
        public static let openCompleted = Event(rawValue: 1)
        /// There are bytes to read, or the end is to be read. Delivered again only after a read.
        public static let hasBytesAvailable = Event(rawValue: 2)
        /// There is room to write. Delivered again only after a write.
        public static let hasSpaceAvailable = Event(rawValue: 4)
        /// The stream has failed. Delivered once, as the last event.
        public static let errorOccurred = Event(rawValue: 8)
        /// The end has been reached. Delivered once; only an error may follow.
        public static let endEncountered = Event(rawValue: 16)
    }

    /// The name of a property.
    public struct PropertyKey: RawRepresentable, Hashable, Sendable {
        /// The name; Cocoa's for Cocoa's keys.
        public let rawValue: String

        /// The key called `rawValue`.
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The key called `rawValue`.
        public init(_ rawValue: String) { self.rawValue = rawValue }

        /// An `Int` (set: any non-negative integer): the offset in a regular file of the next byte to read or
        /// write. An output waits until its accepted bytes are written, for both getting and setting it.
        ///
        /// It can be set before opening and while the stream is open. Setting it returns false, and changes
        /// nothing, for a file that is written with O_APPEND, for a pipe, terminal, socket or device, and
        /// once the stream is at its end, has failed or is closed. If it was set for a path that turns out
        /// not to be a regular file, ``Stream/open()`` fails with `Errno.illegalSeek`.
        public static let fileCurrentOffsetKey = PropertyKey("kCFStreamPropertyFileCurrentOffset")

        /// An `Int`: ``OutputStream/writeBufferSize``, for sockets, pipes and terminals.
        package static let writeBufferSizeKey = PropertyKey("ReactorWriteBufferSize")

        /// A `[UInt8]`: the bytes that were written to a stream in memory. Readable after closing too.
        package static let writtenBytesKey = PropertyKey("ReactorWrittenBytes")
    }
}

extension Stream.Event: CustomStringConvertible {
    /// The names of the events, such as `[openCompleted, hasBytesAvailable]`; a single event without
    /// brackets.
    public var description: String {
        names.count == 1 ? names[0] : "[\(names.joined(separator: ", "))]"
    }

    var names: [String] {
        let known = [
            "openCompleted", "hasBytesAvailable", "hasSpaceAvailable", "errorOccurred", "endEncountered",
        ]
        var names = known.enumerated().compactMap { bit, name in rawValue & (1 << bit) == 0 ? nil : name }
        let unknown = rawValue & ~31
        if unknown != 0 { names.append("0x" + String(unknown, radix: 16)) }
        return names
    }
}

extension Stream.PropertyKey: CustomStringConvertible {
    /// The key's name.
    public var description: String { rawValue }
}

/// Provides the properties whose values have types of another module.
package protocol StreamPropertyBridge {
    /// The value of a property that no stream has by itself.
    static func property(_ key: Stream.PropertyKey, of stream: Stream) -> Any?
}

/// Finds the ``StreamPropertyBridge`` of a program that links ReactorFoundation, which declares the
/// conformance. The conformance is looked up at run time, so nothing has to be registered first.
package enum StreamProperties {
    static var bridge: (any StreamPropertyBridge.Type)? {
        StreamProperties.self as? any StreamPropertyBridge.Type
    }
}
