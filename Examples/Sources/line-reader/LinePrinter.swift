import Dispatch
import Reactor
import Synchronization
import SystemPackage

/// Standard output, behind a buffer. The worker writes lines to it, and the main thread the totals after
/// them.
///
/// A stream without a loop waits for room, and so the worker for a slow reader: then no more is read than
/// fits in flight. A reader that has gone is an error like any other, and no signal.
final class LinePrinter: Sendable {
    private struct State {
        let stream: OutputStream
        var buffer: [UInt8] = []
        /// Whether the end of the last line has not been printed.
        var isInsideLine = false

        /// Ends a line whose other pieces do not come any more.
        mutating func endLine() {
            if isInsideLine { buffer.append(UInt8(ascii: "\n")) }
            isInsideLine = false
        }

        /// Writes all that is in the buffer; why not, if that cannot be done.
        mutating func flush() -> Errno? {
            defer { buffer.removeAll(keepingCapacity: true) }
            return stream.write(buffer) == buffer.count ? nil : (stream.streamError as? IOError)?.errno
        }
    }

    /// Enough to make a system call cheap; little beside the chunks in flight.
    private static let bufferSize = 32_768

    private let state: Mutex<State>
    /// Apart, so that asking does not wait for a write that is under way.
    private let failure = Mutex<Errno?>(nil)
    private let isFlushDue = Atomic(false)

    init() {
        let stream = OutputStream(descriptor: .standardOutput)
        stream.open()
        state = Mutex(State(stream: stream))
    }

    /// Why no more can be written, if so.
    var fault: Errno? { failure.withLock { $0 } }

    /// Prints a numbered line, or a piece of one.
    ///
    /// - Parameters:
    ///   - number: Nil for a piece that is not the first.
    ///   - endsLine: False for a piece that is not the last.
    /// - Throws: `StopProcessing` when standard output has failed; ``fault`` tells why.
    func print(_ line: RawSpan, number: Int?, endsLine: Bool = true) throws {
        try state.withLock { state in
            if let number {
                state.endLine()
                state.buffer.append(contentsOf: "\(number)\t".utf8)
            }
            unsafe line.withUnsafeBytes { unsafe state.buffer.append(contentsOf: $0) }
            state.isInsideLine = true
            if endsLine { state.endLine() }
            if state.buffer.count >= Self.bufferSize { note(state.flush()) }
            if fault != nil { throw StopProcessing() }
        }
    }

    /// Prints `text` after all lines, and writes what is in the buffer.
    func print(_ text: String) {
        state.withLock { state in
            state.endLine()
            state.buffer.append(contentsOf: "\(text)\n".utf8)
            note(state.flush())
        }
    }

    /// Writes what is in the buffer, on `queue`. Never waits, neither for the queue nor for a reader.
    func flushSoon(on queue: DispatchQueue) {
        guard !isFlushDue.exchange(true, ordering: .relaxed) else { return }
        queue.async { [self] in
            isFlushDue.store(false, ordering: .relaxed)
            state.withLock { state in note(state.flush()) }
        }
    }

    private func note(_ fault: Errno?) {
        guard let fault else { return }
        failure.withLock { $0 = $0 ?? fault }
    }
}
