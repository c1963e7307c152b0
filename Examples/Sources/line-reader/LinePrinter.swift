import Dispatch
import ExampleSupport
import Reactor
import SystemPackage

import struct Synchronization.Atomic

/// Buffers standard output. The worker prints lines; after the last one, the main thread prints the totals.
///
/// The stream is not scheduled on a loop, so its writes block. If the reader of a pipe is slow, the worker waits for it
/// and reading stops. If the reader has closed the pipe, writes fail with `EPIPE` instead of raising SIGPIPE.
final class LinePrinter: Sendable {
    private struct State {
        let stream: OutputStream
        var buffer: [UInt8] = []
        /// Whether the last printed line still lacks its terminator.
        var isInsideLine = false

        /// Terminates an incomplete line.
        mutating func endLine() {
            if isInsideLine { buffer.append(UInt8(ascii: "\n")) }
            isInsideLine = false
        }

        /// Writes the buffer, and returns the error if that fails.
        mutating func flush() -> Errno? {
            defer { buffer.removeAll(keepingCapacity: true) }
            return stream.write(buffer) == buffer.count ? nil : (stream.streamError as? IOError)?.errno
        }
    }

    /// Large enough that system calls cost little; small compared with the chunks in flight.
    private static let bufferSize = 32_768

    private let state: Mutex<State>
    /// Has its own lock, so that ``fault`` does not wait for a write in progress.
    private let failure = Mutex<Errno?>(nil)
    private let isFlushPending = Atomic(false)

    init() {
        let stream = OutputStream(descriptor: .standardOutput)
        stream.open()
        state = Mutex(State(stream: stream))
    }

    /// The error that made writing fail, if any.
    var fault: Errno? { failure.withLock { $0 } }

    /// Prints a line with its number, or a part of a line.
    ///
    /// - Parameters:
    ///   - number: The line's number; nil for the second and later parts of a line.
    ///   - endsLine: False for all parts of a line but the last.
    /// - Throws: `StopProcessing` if a write has failed; ``fault`` has the error.
    func print(_ line: RawSpan, number: Int?, endsLine: Bool = true) throws {
        try state.withLock { state in
            if let number {
                state.endLine()
                state.buffer.append(contentsOf: "\(number)\t".utf8)
            }
            unsafe line.withUnsafeBytes { unsafe state.buffer.append(contentsOf: $0) }
            state.isInsideLine = true
            if endsLine { state.endLine() }
            if state.buffer.count >= Self.bufferSize { record(state.flush()) }
            if fault != nil { throw StopProcessing() }
        }
    }

    /// Prints `text` on a new line, and flushes the buffer.
    func print(_ text: String) {
        state.withLock { state in
            state.endLine()
            state.buffer.append(contentsOf: "\(text)\n".utf8)
            record(state.flush())
        }
    }

    /// Flushes the buffer on `queue`. Returns without waiting for the queue or a write.
    func flushSoon(on queue: DispatchQueue) {
        guard !isFlushPending.exchange(true, ordering: .relaxed) else { return }
        queue.async { [self] in
            isFlushPending.store(false, ordering: .relaxed)
            state.withLock { state in record(state.flush()) }
        }
    }

    private func record(_ fault: Errno?) {
        guard let fault else { return }
        failure.withLock { $0 = $0 ?? fault }
    }
}
