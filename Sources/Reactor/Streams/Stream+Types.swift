extension Stream {
    /// What a stream is doing. The values are Cocoa's.
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
        /// Failed; stays so when it is closed.
        case error = 7
    }

    /// What happens on a stream. The bits are Cocoa's, and events that come together are told in their order.
    public struct Event: OptionSet, Sendable, Hashable {
        /// The bits.
        public let rawValue: UInt

        /// Makes a set from its bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// The stream has opened. Told once, before any other event but a fault.
        public static let openCompleted = Event(rawValue: 1)
        /// There are bytes to read, or the end is to be read. Told again only after a read.
        public static let hasBytesAvailable = Event(rawValue: 2)
        /// There is room to write. Told again only after a write.
        public static let hasSpaceAvailable = Event(rawValue: 4)
        /// The stream has failed. Told once; the last event.
        public static let errorOccurred = Event(rawValue: 8)
        /// The end has been reached. Told once; only a fault may follow.
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

        /// An `Int` (set: any integer that is not negative): where in a regular file the next byte is read or written.
        ///
        /// Can be set before opening and while the stream is open. Setting it returns false, and changes nothing, for
        /// a file that is written with O_APPEND, for a pipe, terminal, socket or device, and once the stream is at its
        /// end, has failed or is closed. Set for a path that turns out to be none of a regular file, it makes
        /// ``Stream/open()`` fail with `Errno.illegalSeek`.
        public static let fileCurrentOffsetKey = PropertyKey("kCFStreamPropertyFileCurrentOffset")

        /// An `Int`: ``OutputStream/writeBufferSize``, of a socket, pipe or terminal.
        public static let writeBufferSizeKey = PropertyKey("ReactorWriteBufferSize")

        /// A `[UInt8]`: what has been written to a memory stream so far. Stays readable after closing.
        public static let writtenBytesKey = PropertyKey("ReactorWrittenBytes")
    }
}
