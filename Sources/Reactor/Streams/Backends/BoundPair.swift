import Glibc
import Synchronization
import SystemPackage

/// The bytes between the two halves of a bound pair.
package final class BoundBuffer: Sendable {
    struct State {
        /// The output ends it, and the input cancels it.
        var bytes: BoundedQueue<ByteQueue, any Error>
        /// The engines of the open halves, which are refreshed when the other half changes something.
        var input: StreamEngine?
        var output: StreamEngine?
    }

    private let state: Mutex<State>
    private let changed = EventCount()

    package init(capacity: Int) { state = Mutex(State(bytes: BoundedQueue(limit: capacity))) }

    func look<Answer>(_ question: (inout State) -> Answer) -> Answer { state.withLock { question(&$0) } }

    /// The input fails with `error` once its bytes have been read. Called before the output is closed.
    package func fail(_ error: any Error) { change(\.input) { $0.bytes.end(error) } }

    /// Performs a change, and wakes the threads that wait for one. Refreshes the engine that `half` returns.
    func change(_ half: (State) -> StreamEngine?, _ change: (inout State) -> Void) {
        let engine = state.withLock { state in
            change(&state)
            return half(state)
        }
        changed.broadcast()
        engine?.refresh()
    }

    /// Tries `attempt` again after every change, until it has a result.
    func move(
        _ half: (State) -> StreamEngine?, _ attempt: (inout State) -> Result<Transfer, Errno>?
    ) throws(Errno) -> Transfer {
        let (result, other) = changed.wait {
            state.withLock { state in attempt(&state).map { ($0, half(state)) } }
        }
        let transfer = try result.get()
        if transfer.count > 0 {
            changed.broadcast()
            other?.refresh()
        }
        return transfer
    }
}

/// The input half of a bound pair.
final class BoundInput: InputBackend {
    private let buffer: BoundBuffer

    init(_ buffer: BoundBuffer) { self.buffer = buffer }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        buffer.look { $0.input = engine }
        return self
    }

    func close() throws(Errno) {
        buffer.change(\.output) { state in
            state.bytes.cancel()
            state.input = nil
        }
    }

    func isReady() -> Bool {
        buffer.look { $0.bytes.hasResult }
    }

    /// The error of the output, once its bytes have been read.
    var refusal: (any Error)? { buffer.look { $0.bytes.isEmpty ? $0.bytes.producerFailure : nil } }

    func prepare() -> Availability {
        if let refusal { return .failed(refusal) }
        return isReady() ? .ready : .waiting
    }

    /// Reads the bytes that are there, or the end once the other half is closed and all bytes have been read.
    func read(into destination: inout MutableRawSpan) throws(Errno) -> Transfer {
        try buffer.move(\.output) { state in
            if state.bytes.isCancelled { return .failure(.badFileDescriptor) }
            if !state.bytes.isEmpty {
                return .success(Transfer(count: state.bytes.contents.take(into: &destination)))
            }
            if state.bytes.producerFailure != nil { return .failure(.canceled) }
            return state.bytes.isOpen ? nil : .success(Transfer(count: 0, isAtEnd: true))
        }
    }
}

/// The output half of a bound pair.
final class BoundOutput: OutputBackend {
    private let buffer: BoundBuffer

    init(_ buffer: BoundBuffer) { self.buffer = buffer }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        buffer.look { $0.output = engine }
        return self
    }

    func close() throws(Errno) {
        buffer.change(\.input) { state in
            state.bytes.end()
            state.output = nil
        }
    }

    var isAtEndWhenOpened: Bool { buffer.look { $0.bytes.isCancelled } }

    func isReady() -> Bool { buffer.look { $0.bytes.hasRoom || $0.bytes.isCancelled } }

    /// At the end as soon as the other half is closed, so that a writer with nothing to write learns of it
    /// too.
    func prepare() -> Availability {
        buffer.look { $0.bytes.isCancelled ? .atEnd : $0.bytes.hasRoom ? .ready : .waiting }
    }

    /// Waits only if there is no room at all. Accepts nothing once the other half is closed.
    func write(_ bytes: RawSpan, isScheduled: Bool) throws(Errno) -> Transfer {
        try buffer.move(\.input) { state in
            if state.bytes.isCancelled { return .success(Transfer(count: 0, isAtEnd: true)) }
            if !state.bytes.isOpen { return .failure(.badFileDescriptor) }
            guard state.bytes.hasRoom else { return nil }
            return .success(
                Transfer(count: state.bytes.contents.append(bytes, limit: state.bytes.limit)))
        }
    }
}

extension InputStream {
    /// The input half of a pair whose buffer the caller has.
    package convenience init(reading buffer: BoundBuffer) { self.init(backend: BoundInput(buffer)) }
}

extension OutputStream {
    /// The output half.
    package convenience init(writing buffer: BoundBuffer) { self.init(backend: BoundOutput(buffer)) }
}

extension Stream {
    /// Creates an input that reads what an output writes, in order.
    ///
    /// The output has room while fewer than `size` bytes are unread. A write to a full pair waits, so use the
    /// halves from two threads, or write when the delegate receives ``Event/hasSpaceAvailable``. After the
    /// output is closed the input reads the remaining bytes, then its end.
    ///
    /// Closing the input ends the output: on a run loop it delivers ``Event/endEncountered``, whatever it has
    /// delivered before, and a write returns 0, even one that waits for room. That is no error, as in Cocoa.
    /// Bytes that the input has not read are lost.
    /// - Precondition: `size` is positive.
    public static func boundPair(bufferSize size: Int) -> (input: InputStream, output: OutputStream) {
        require(size > 0, "Stream.boundPair(bufferSize:) needs a positive size, not \(size).")
        let buffer = BoundBuffer(capacity: size)
        return (InputStream(backend: BoundInput(buffer)), OutputStream(backend: BoundOutput(buffer)))
    }

    /// Creates a bound pair as ``boundPair(bufferSize:)`` does, in Cocoa's spelling. A nil pointer means that
    /// its half is not wanted.
    public class func getBoundStreams(
        withBufferSize bufferSize: Int, inputStream: UnsafeMutablePointer<InputStream?>?,
        outputStream: UnsafeMutablePointer<OutputStream?>?
    ) {
        let pair = boundPair(bufferSize: bufferSize)
        unsafe inputStream?.pointee = pair.input
        unsafe outputStream?.pointee = pair.output
    }
}
