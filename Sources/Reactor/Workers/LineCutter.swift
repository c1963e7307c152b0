/// How the lines of a reading are delivered.
@usableFromInline
enum LineDelivery {
    case bytes((RawSpan, LineFramer.Line) throws -> Void)
    case text(TextPolicy, (String, LineFramer.Line) throws -> Void)
}

/// What of a reading does not depend on the type of its value.
struct LineCutter {
    private(set) var framer: LineFramer
    /// Looked at after each line: a chunk may have thousands, and the closure may be slow.
    private let isCancelled: Flag
    private let delivery: LineDelivery
    /// The line, or the piece of one, that was no text: it was not delivered, and nothing comes after it.
    private var refused: LineFramer.Line?

    /// The lines that were delivered.
    var lineCount: Int { refused.map { $0.number - 1 } ?? framer.lineCount }
    /// Where the last delivery ended.
    var byteCount: Int { refused?.offset ?? framer.deliveredByteCount }

    init(framer: LineFramer, isCancelled: Flag, delivery: LineDelivery) {
        self.framer = framer
        self.isCancelled = isCancelled
        self.delivery = delivery
    }

    /// What ends each line, if lines are delivered as text: only they gain by a survey. The reading of lines as
    /// bytes waits for the reader.
    var lineEnd: UInt8? { if case .text = delivery { framer.plainTerminator } else { nil } }

    mutating func process(_ chunk: RawSpan, _ survey: LineSurvey?) throws {
        let taken: Int
        do {
            taken =
                switch delivery {
                case .bytes(let receive): try push(chunk, receive)
                case .text(let policy, let receive): try push(chunk, survey, policy, receive)
                }
        } catch let refusal as Refusal { throw heed(refusal) }
        if taken < chunk.byteCount { throw StopProcessing() }
    }

    mutating func finish() throws {
        let (isCancelled, delivery) = (isCancelled, delivery)
        do {
            try framer.finish { bytes, line in
                switch delivery {
                case .bytes(let receive): try receive(bytes, line)
                case .text(let policy, let receive): try receive(line.deliverableText(bytes, policy), line)
                }
                return isCancelled.isRaised ? .enough : .more
            }
        } catch let refusal as Refusal { throw heed(refusal) }
    }

    /// Notes what was not delivered; the error for the client.
    private mutating func heed(_ refusal: Refusal) -> InvalidText {
        refused = refusal.line
        return refusal.error
    }

    private mutating func push(
        _ chunk: RawSpan, _ receive: @escaping (RawSpan, LineFramer.Line) throws -> Void
    ) throws -> Int {
        let isCancelled = isCancelled
        return try framer.push(chunk, nil) { bytes, line, _ in
            try receive(bytes, line)
            return isCancelled.isRaised ? .enough : .more
        }
    }

    private mutating func push(
        _ chunk: RawSpan, _ survey: LineSurvey?, _ policy: TextPolicy,
        _ receive: @escaping (String, LineFramer.Line) throws -> Void
    ) throws -> Int {
        let isCancelled = isCancelled
        return try framer.push(chunk, survey) { bytes, line, end in
            let text =
                if end.isText { unsafe String(unchecked: bytes, isASCII: end.isASCII) } else {
                    try line.deliverableText(bytes, policy)
                }
            try receive(text, line)
            return isCancelled.isRaised ? .enough : .more
        }
    }
}

/// A line was no text, and so was not delivered. The client's closure may throw `InvalidText` too, of a line that was.
private struct Refusal: Error {
    let line: LineFramer.Line
    let error: InvalidText
}

extension LineFramer.Line {
    /// As ``text(_:_:)``, with an error that tells the line.
    ///
    /// Not inlined: in the loop over lines that are known to be text it would only take registers.
    @inline(never)
    fileprivate func deliverableText(_ bytes: RawSpan, _ policy: TextPolicy) throws(Refusal) -> String {
        do throws(InvalidText) { return try text(bytes, policy) } catch {
            throw Refusal(line: self, error: error)
        }
    }
}
