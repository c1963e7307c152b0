import Glibc
import Synchronization
import SystemPackage

/// The bytes between the two halves of a bound pair: a ring, and who waits at its ends.
final class BoundBuffer: Sendable {
    struct State {
        var bytes: [UInt8]
        var start = 0
        var count = 0
        var isInputClosed = false
        var isOutputClosed = false
        /// The halves' engines, which are told when something has changed for them; nil until they are open.
        var input: StreamEngine?
        var output: StreamEngine?
    }

    private let state: Mutex<State>
    private let changed = Condition()

    init(capacity: Int) { state = Mutex(State(bytes: [UInt8](repeating: 0, count: capacity))) }

    func look<Answer>(_ question: (inout State) -> Answer) -> Answer { state.withLock { question(&$0) } }

    /// Changes what is there, and tells whoever waits for it, and `half`.
    func change(_ half: (State) -> StreamEngine?, _ change: (inout State) -> Void) {
        let engine = state.withLock { state in
            change(&state)
            return half(state)
        }
        changed.broadcast()
        engine?.refresh()
    }

    /// Tries `attempt` again after every change, until it does something.
    func move(
        _ half: (State) -> StreamEngine?, _ attempt: (inout State) -> Result<Transfer, Errno>?
    ) throws(Errno) -> Transfer {
        while true {
            let generation = changed.generation
            var result: Result<Transfer, Errno>?
            let other = state.withLock { state in
                result = attempt(&state)
                return half(state)
            }
            guard let transfer = try result?.get() else {
                changed.wait(after: generation)
                continue
            }
            if transfer.count > 0 {
                changed.broadcast()
                other?.refresh()
            }
            return transfer
        }
    }
}

/// The half of a bound pair that is read.
final class BoundInput: InputBackend {
    private let buffer: BoundBuffer

    init(_ buffer: BoundBuffer) { self.buffer = buffer }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        buffer.look { $0.input = engine }
        return self
    }

    func close() throws(Errno) {
        buffer.change(\.output) { state in
            state.isInputClosed = true
            state.input = nil
        }
    }

    func isReady() -> Bool { buffer.look { $0.count > 0 || $0.isOutputClosed } }

    /// The bytes that are there; the end once the other half is closed and all has been read.
    func read(into destination: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        try buffer.move(\.output) { state in
            if state.isInputClosed { return .failure(.badFileDescriptor) }
            if state.count > 0 { return .success(Transfer(count: unsafe state.take(destination))) }
            return state.isOutputClosed ? .success(Transfer(count: 0, isAtEnd: true)) : nil
        }
    }
}

/// The half of a bound pair that is written.
final class BoundOutput: OutputBackend {
    private let buffer: BoundBuffer

    init(_ buffer: BoundBuffer) { self.buffer = buffer }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        buffer.look { $0.output = engine }
        return self
    }

    func close() throws(Errno) {
        buffer.change(\.input) { state in
            state.isOutputClosed = true
            state.output = nil
        }
    }

    var isAtEndWhenOpened: Bool { buffer.look { $0.isInputClosed } }

    func isReady() -> Bool { buffer.look { $0.room > 0 || $0.isInputClosed } }

    /// The end as soon as the other half is closed: a writer that has nothing to write is to learn of it, too.
    func prepare() -> Availability {
        buffer.look { $0.isInputClosed ? .atEnd : $0.room > 0 ? .ready : .waiting }
    }

    /// Waits only when there is no room at all; takes nothing once the other half is closed.
    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        try buffer.move(\.input) { state in
            if state.isOutputClosed { return .failure(.badFileDescriptor) }
            if state.isInputClosed { return .success(Transfer(count: 0, isAtEnd: true)) }
            return state.room > 0 ? .success(Transfer(count: unsafe state.put(bytes))) : nil
        }
    }
}

extension BoundBuffer.State {
    var room: Int { bytes.count - count }

    /// Moves bytes out, in at most two pieces.
    mutating func take(_ destination: UnsafeMutableRawBufferPointer) -> Int {
        let wanted = min(destination.count, count)
        let first = min(wanted, bytes.count - start)
        unsafe bytes.withUnsafeBytes { ring in
            unsafe destination.copyMemory(from: UnsafeRawBufferPointer(rebasing: ring[start..<start + first]))
            let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: destination[first..<wanted])
            unsafe rest.copyMemory(from: UnsafeRawBufferPointer(rebasing: ring[0..<wanted - first]))
        }
        start = (start + wanted) % bytes.count
        count -= wanted
        return wanted
    }

    /// Moves bytes in, in at most two pieces.
    mutating func put(_ source: UnsafeRawBufferPointer) -> Int {
        let wanted = min(source.count, room)
        let place = (start + count) % bytes.count
        let first = min(wanted, bytes.count - place)
        unsafe bytes.withUnsafeMutableBytes { ring in
            let front = unsafe UnsafeMutableRawBufferPointer(rebasing: ring[place..<place + first])
            unsafe front.copyMemory(from: UnsafeRawBufferPointer(rebasing: source[0..<first]))
            let back = unsafe UnsafeMutableRawBufferPointer(rebasing: ring[0..<wanted - first])
            unsafe back.copyMemory(from: UnsafeRawBufferPointer(rebasing: source[first..<wanted]))
        }
        count += wanted
        return wanted
    }
}

extension Stream {
    /// Makes two streams of which one reads what the other writes, in order.
    ///
    /// The output has room while fewer than `size` bytes are under way; a write to a full pair waits, so use
    /// the halves from two threads, or write when the delegate is told of room. Closing the output lets the
    /// input read what is left, then its end.
    ///
    /// Closing the input ends the output: scheduled, it delivers ``Event/endEncountered``, whatever it has delivered
    /// before; a write returns 0, also one that waits for room. That is no error, as in Cocoa; what the input has not
    /// read is lost.
    /// - Precondition: `size` is positive.
    public static func boundPair(bufferSize size: Int) -> (input: InputStream, output: OutputStream) {
        precondition(size > 0, "a bound pair needs room for at least one byte")
        let buffer = BoundBuffer(capacity: size)
        return (InputStream(backend: BoundInput(buffer)), OutputStream(backend: BoundOutput(buffer)))
    }

    /// As ``boundPair(bufferSize:)``, in Cocoa's spelling: what a pointer is nil for is not handed out.
    public class func getBoundStreams(
        withBufferSize bufferSize: Int, inputStream: UnsafeMutablePointer<InputStream?>?,
        outputStream: UnsafeMutablePointer<OutputStream?>?
    ) {
        let pair = boundPair(bufferSize: bufferSize)
        unsafe inputStream?.pointee = pair.input
        unsafe outputStream?.pointee = pair.output
    }
}
