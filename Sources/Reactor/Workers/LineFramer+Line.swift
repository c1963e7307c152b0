extension LineFramer {
    /// Where a line, or a piece of one, stands in its stream, and how it ended.
    public struct Line: Sendable, Hashable {
        /// The line's number, from one. The pieces of one line share it.
        public let number: Int
        /// The place of its first byte in the stream, in bytes from zero.
        public let offset: Int
        /// How many bytes of terminator followed; zero unless `ending` is `.terminated`.
        public let terminatorLength: Int
        /// What came after its last byte.
        public let ending: Ending
        @usableFromInline let knowledge: Knowledge

        @inlinable
        init(
            number: Int, offset: Int, terminatorLength: Int, ending: Ending, knowledge: Knowledge = .nothing
        ) {
            self.number = number
            self.offset = offset
            self.terminatorLength = terminatorLength
            self.ending = ending
            self.knowledge = knowledge
        }

        /// Whether the bytes have been found to be UTF-8 together with those around them, and need no check. False
        /// of others, and of all where ``LineFramer/checksUTF8`` is false; it does not count when lines are compared.
        @inlinable public var isKnownUTF8: Bool { knowledge.isUTF8 }
    }

    /// What is known of the bytes of a line. No part of the line's place: all are equal.
    @usableFromInline
    enum Knowledge: Sendable, Hashable {
        case nothing, utf8, ascii

        @inlinable var isUTF8: Bool { if case .nothing = self { false } else { true } }

        @usableFromInline static func == (left: Self, right: Self) -> Bool { true }

        @usableFromInline func hash(into hasher: inout Hasher) {}
    }

    /// What comes after the last byte of a delivery.
    public enum Ending: Sendable, Hashable {
        /// The terminator.
        case terminated
        /// The end of the stream.
        case unterminated
        /// More bytes of the same line, which are skipped (`Overflow.truncate`).
        case truncated
        /// More bytes of the same line, in the next delivery (`Overflow.split`).
        case continued
    }

    /// What to do with a line of more bytes than the limit.
    public enum Overflow: Sendable, Hashable {
        /// Throw `LineTooLong`, after all earlier lines have been delivered.
        case fail
        /// Deliver as many bytes as the limit and skip the others, when the line has ended.
        case truncate
        /// Deliver pieces of as many bytes as the limit, and last what remains, at least one byte.
        ///
        /// A piece may end inside a character.
        case split
    }

    /// Whether the receiver of a line wants another one.
    public enum Demand: Sendable, Hashable {
        case more
        case enough
    }

    /// A line had more bytes than the limit.
    public struct LineTooLong: Error, Sendable, Hashable {
        /// The line's number, from one.
        public let number: Int
        /// The place of its first byte in the stream, in bytes from zero.
        public let offset: Int
        /// The most bytes it might have had.
        public let limit: Int
    }
}
