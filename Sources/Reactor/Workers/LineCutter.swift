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

    init(framer: LineFramer, isCancelled: Flag, delivery: LineDelivery) {
        self.framer = framer
        self.isCancelled = isCancelled
        self.delivery = delivery
    }

    /// What ends each line, if lines are delivered as text: only they gain by a survey. The reading of lines as
    /// bytes waits for the reader.
    var lineEnd: UInt8? { if case .text = delivery { framer.plainTerminator } else { nil } }

    mutating func process(_ chunk: RawSpan, _ survey: LineSurvey?) throws {
        let taken =
            switch delivery {
            case .bytes(let receive): try push(chunk, receive)
            case .text(let policy, let receive): try push(chunk, survey, policy, receive)
            }
        if taken < chunk.byteCount { throw StopProcessing() }
    }

    mutating func finish() throws {
        let (isCancelled, delivery) = (isCancelled, delivery)
        try framer.finish { bytes, line in
            switch delivery {
            case .bytes(let receive): try receive(bytes, line)
            case .text(let policy, let receive): try receive(line.text(bytes, policy), line)
            }
            return isCancelled.isRaised ? .enough : .more
        }
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
                    try line.text(bytes, policy)
                }
            try receive(text, line)
            return isCancelled.isRaised ? .enough : .more
        }
    }
}
