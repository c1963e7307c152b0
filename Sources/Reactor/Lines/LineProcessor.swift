/// Cuts chunks into lines, and delivers them to a closure.
struct LineProcessor<Value: Sendable>: ChunkProcessor {
    private var value: Value
    private var framer: LineFramer
    private let delivery: LineDelivery<Value>
    private let atEnd: (@Sendable (inout Value) throws -> Void)?
    /// Checked after each line: a chunk may have thousands, and the closure may be slow.
    private let isCancelled: Flag
    /// The line, or the piece of one, that is not UTF-8. It was not delivered, and nothing follows it.
    private var refused: LineFramer.Line?

    init(
        _ value: Value, _ delivery: LineDelivery<Value>, _ atEnd: (@Sendable (inout Value) throws -> Void)?,
        _ framer: LineFramer, isCancelled: Flag
    ) {
        self.value = value
        self.delivery = delivery
        self.atEnd = atEnd
        self.framer = framer
        self.isCancelled = isCancelled
        if delivery.isText { self.framer.checksUTF8 = true }
    }

    mutating func process(_ chunk: RawSpan) throws {
        do {
            let taken = try delivery.push(chunk, &framer, &value, isCancelled)
            if taken < chunk.byteCount { throw StopProcessing() }
        } catch let refusal as Refusal { throw note(refusal) }
    }

    mutating func finish() throws {
        do { try delivery.finish(&framer, &value, isCancelled) } catch let refusal as Refusal {
            throw note(refusal)
        }
        if !isCancelled.isRaised { try atEnd?(&value) }
    }

    /// Records the line that was not delivered, and returns the error for the client.
    private mutating func note(_ refusal: Refusal) -> InvalidText {
        refused = refusal.line
        return refusal.error
    }

    var output: LineOutput<Value> {
        LineOutput(
            value: value, lineCount: refused.map { $0.number - 1 } ?? framer.lineCount,
            byteCount: refused?.offset ?? framer.deliveredByteCount, longestLine: framer.longestLine)
    }
}

/// Delivers the lines of one stream.
///
/// Created in the client's module, where the optimizer knows the value's type and builds the loop over a
/// chunk's lines around the client's closure: a line costs one call.
@usableFromInline
struct LineDelivery<Value>: Sendable {
    @usableFromInline typealias Push =
        @Sendable (RawSpan, inout LineFramer, inout Value, Flag) throws -> Int
    @usableFromInline typealias Finish = @Sendable (inout LineFramer, inout Value, Flag) throws -> Void

    let isText: Bool
    let push: Push
    let finish: Finish

    @usableFromInline
    init(isText: Bool, push: @escaping Push, finish: @escaping Finish) {
        self.isText = isText
        self.push = push
        self.finish = finish
    }
}

extension LineDelivery where Value: Sendable {
    @inlinable
    init(_ body: @escaping @Sendable (inout Value, RawSpan, LineFramer.Line) throws -> Void) {
        self.init(isText: false) { chunk, framer, value, isCancelled in
            try framer.push(chunk) { bytes, line in
                try body(&value, bytes, line)
                return isCancelled.isRaised ? .enough : .more
            }
        } finish: { framer, value, isCancelled in
            try framer.finish { bytes, line in
                try body(&value, bytes, line)
                return isCancelled.isRaised ? .enough : .more
            }
        }
    }

    @inlinable
    init(
        _ policy: TextPolicy,
        _ body: @escaping @Sendable (inout Value, String, LineFramer.Line) throws -> Void
    ) {
        self.init(isText: true) { chunk, framer, value, isCancelled in
            try framer.push(chunk) { bytes, line in
                try body(&value, line.deliverableText(bytes, policy), line)
                return isCancelled.isRaised ? .enough : .more
            }
        } finish: { framer, value, isCancelled in
            try framer.finish { bytes, line in
                try body(&value, line.deliverableText(bytes, policy), line)
                return isCancelled.isRaised ? .enough : .more
            }
        }
    }
}

/// A line is not UTF-8, and was not delivered. The client's closure may throw `InvalidText` too, for a line
/// that was.
private struct Refusal: Error {
    let line: LineFramer.Line
    let error: InvalidText
}

extension LineFramer.Line {
    /// As ``text(_:_:)``, with an error that includes the line.
    @usableFromInline
    func deliverableText(_ bytes: RawSpan, _ policy: TextPolicy) throws -> String {
        do throws(InvalidText) { return try checkedText(bytes, policy) } catch {
            throw Refusal(line: self, error: error)
        }
    }

    /// As ``text(_:_:)``, for the bytes that the framer has delivered with this value: what it knows of them
    /// is not checked again.
    func checkedText(_ bytes: RawSpan, _ policy: TextPolicy) throws(InvalidText) -> String {
        if isKnownUTF8 { return unsafe String(unchecked: bytes, isKnownASCII: validation == .ascii) }
        return try text(bytes, policy)
    }
}
