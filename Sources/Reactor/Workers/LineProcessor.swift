/// Where the lines of one reading go: a closure, and the value that it works on.
///
/// Made in the client's module, where the optimiser knows the value's type: a line costs a call, and no look
/// at a type.
@safe
@usableFromInline
struct LineReceiver<Value: Sendable> {
    @usableFromInline let delivery: LineDelivery
    @usableFromInline let place: ValuePlace<Value>

    @inlinable
    init(_ value: Value, _ body: @escaping LineReader<Value>.Body) {
        let place = ValuePlace(value)
        self.place = place
        delivery = .bytes { bytes, line in try unsafe body(&place.pointer.pointee, bytes, line) }
    }

    @inlinable
    init(_ value: Value, _ policy: TextPolicy, _ body: @escaping LineReader<Value>.TextBody) {
        let place = ValuePlace(value)
        self.place = place
        delivery = .text(policy) { text, line in try unsafe body(&place.pointer.pointee, text, line) }
    }

    /// The value, as it is now.
    var value: Value { unsafe place.pointer.pointee }
}

/// A value's place in memory, which the closures of one reading share; accesses are not checked one by one,
/// as a class's property would be, because all of them are made by the one worker that has the reading in
/// hand.
@safe
@usableFromInline
final class ValuePlace<Value> {
    @usableFromInline let pointer: UnsafeMutablePointer<Value>

    @inlinable
    init(_ value: Value) {
        unsafe pointer = UnsafeMutablePointer<Value>.allocate(capacity: 1)
        unsafe pointer.initialize(to: value)
    }

    @inlinable
    deinit {
        unsafe pointer.deinitialize(count: 1)
        unsafe pointer.deallocate()
    }
}

/// Cuts chunks into lines.
struct LineProcessor<Value: Sendable>: ChunkProcessor {
    private var cutter: LineCutter
    private let receiver: LineReceiver<Value>

    init(framer: LineFramer, receiver: LineReceiver<Value>, isCancelled: Flag) {
        cutter = LineCutter(framer: framer, isCancelled: isCancelled, delivery: receiver.delivery)
        self.receiver = receiver
    }

    mutating func process(_ chunk: RawSpan) throws { try process(chunk, nil) }

    mutating func process(_ chunk: RawSpan, _ survey: LineSurvey?) throws {
        try cutter.process(chunk, survey)
    }

    /// What ends each line, if it is to be looked for beforehand.
    var lineEnd: UInt8? { cutter.lineEnd }

    mutating func finish() throws { try cutter.finish() }

    var output: LineReader<Value>.Output {
        LineReader.Output(
            value: receiver.value, lineCount: cutter.lineCount, byteCount: cutter.byteCount,
            longestLine: cutter.framer.longestLine)
    }
}
