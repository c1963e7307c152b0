import Reactor

/// The place of a line, and how it ended.
struct LinePlace: Equatable {
    let number: Int
    let offset: Int
    let terminatorLength: Int
    let ending: LineFramer.Ending
}

extension LineFramer.Line {
    var place: LinePlace {
        LinePlace(number: number, offset: offset, terminatorLength: terminatorLength, ending: ending)
    }
}

/// A delivery's bytes and place.
struct Delivery: Equatable, CustomStringConvertible {
    let bytes: [UInt8]
    let line: LinePlace

    var text: String { String(decoding: bytes, as: UTF8.self) }
    var description: String {
        "\(line.number)@\(line.offset) \(bytes) \(line.ending) \(line.terminatorLength)"
    }
}

/// The result of framing a stream.
struct Outcome: Equatable {
    var deliveries: [Delivery] = []
    /// The number and the offset of the line that was too long, and the limit.
    var failure: [Int]?
    var lineCount = 0
    var byteCount = 0
    var longestLine = 0

    mutating func keep(_ bytes: RawSpan, _ line: LineFramer.Line) -> LineFramer.Demand {
        deliveries.append(Delivery(bytes, line))
        return .more
    }

    mutating func count(_ framer: borrowing LineFramer) {
        (lineCount, byteCount, longestLine) = (framer.lineCount, framer.byteCount, framer.longestLine)
    }
}

/// A framer's parameters.
struct Framing: CustomStringConvertible {
    var terminator = LineTerminator.newline
    var limit = LineFramer.defaultLimit
    var overflow = LineFramer.Overflow.fail

    var description: String { "\(terminator) \(limit) \(overflow)" }
    var framer: LineFramer { LineFramer(terminator: terminator, limit: limit, overflow: overflow) }

    /// The result of framing a stream that arrives in `pieces`.
    func frame(_ pieces: [[UInt8]]) -> Outcome {
        var framer = framer
        var outcome = Outcome()
        do {
            for piece in pieces {
                try unsafe framer.push(piece.span.bytes) { outcome.keep($0, $1) }
            }
            try framer.finish { outcome.keep($0, $1) }
        } catch {
            outcome.failure = (error as? LineFramer.LineTooLong).map { [$0.number, $0.offset, $0.limit] }
        }
        outcome.count(framer)
        return outcome
    }
}

extension Delivery {
    init(_ bytes: RawSpan, _ line: LineFramer.Line) {
        unsafe self.init(bytes: bytes.withUnsafeBytes { unsafe Array($0) }, line: line.place)
    }
}

extension LineFramer {
    /// Pushes text and keeps the deliveries until `isEnough` returns true.
    mutating func push(
        _ text: some StringProtocol, until isEnough: (Delivery) -> Bool = { _ in false }
    ) throws -> (taken: Int, deliveries: [Delivery]) {
        var deliveries: [Delivery] = []
        let bytes = Array(text.utf8)
        let taken = try unsafe push(bytes.span.bytes) {
            deliveries.append(Delivery($0, $1))
            return isEnough(deliveries[deliveries.count - 1]) ? .enough : .more
        }
        return (taken, deliveries)
    }

    mutating func finish() throws -> [Delivery] {
        var outcome = Outcome()
        try finish { outcome.keep($0, $1) }
        return outcome.deliveries
    }
}

// MARK: What should come of a stream, found the slow way

extension Framing {
    func expect(_ input: [UInt8]) -> Outcome {
        var outcome = Outcome()
        while outcome.byteCount < input.count {
            let start = outcome.byteCount
            let (end, width) = lineEnd(in: input, from: start)
            let number = outcome.lineCount + 1
            if overflow == .fail, end - start > limit {
                outcome.failure = [number, start, limit]
                return outcome
            }
            outcome.deliveries += pieces(of: input, start..<end, number, width)
            outcome.lineCount += 1
            outcome.byteCount = end + width
            outcome.longestLine = max(outcome.longestLine, end - start)
        }
        return outcome
    }

    private func pieces(of input: [UInt8], _ line: Range<Int>, _ number: Int, _ width: Int) -> [Delivery] {
        var pieces: [Delivery] = []
        var start = line.lowerBound
        while line.upperBound - start > limit {
            let ending: LineFramer.Ending = overflow == .split ? .continued : .truncated
            let place = LinePlace(number: number, offset: start, terminatorLength: 0, ending: ending)
            pieces.append(Delivery(bytes: Array(input[start..<start + limit]), line: place))
            start += limit
            if overflow == .truncate { return pieces }
        }
        let ending: LineFramer.Ending = width == 0 ? .unterminated : .terminated
        let place = LinePlace(number: number, offset: start, terminatorLength: width, ending: ending)
        return pieces + [Delivery(bytes: Array(input[start..<line.upperBound]), line: place)]
    }

    private func lineEnd(in input: [UInt8], from start: Int) -> (end: Int, width: Int) {
        for end in start..<input.count {
            for candidate in candidates where input[end...].starts(with: candidate) {
                return (end, candidate.count)
            }
        }
        return (input.count, 0)
    }

    private var candidates: [[UInt8]] {
        switch terminator {
        case .lineFeed: [[10]]
        case .newline: [[13, 10], [10]]
        case .carriageReturnLineFeed: [[13, 10]]
        case .bytes(let bytes): [bytes]
        }
    }
}

// MARK: Streams, and the ways in which they arrive

extension [UInt8] {
    /// Cut after the bytes whose bits are set in `mask`.
    func cut(_ mask: Int) -> [[UInt8]] {
        var pieces: [[UInt8]] = [[]]
        for index in indices {
            pieces[pieces.count - 1].append(self[index])
            if mask >> index & 1 == 1 { pieces.append([]) }
        }
        return pieces
    }
}
