import Glibc
import Reactor
import SystemPackage

/// A connection's bytes on their way between OpenSSL and the socket.
///
/// OpenSSL reads from memory of the thread that calls, which is filled from the socket, and writes to such memory, which is
/// sent at the end of the call. So a connection has memory of its own only for what OpenSSL has not read yet.
struct SocketBytes {
    /// The bytes that a call receives from the socket.
    enum Receiving {
        case nothing
        /// As many as OpenSSL asks for.
        case whatIsAsked
        /// As much as so many clear bytes need, and at least a record.
        case clearBytes(Int)
    }

    /// The buffers that OpenSSL uses during one call.
    private struct Call {
        let memory = ThreadMemory.current
        let wire: SocketWire
        /// How many bytes to receive from the socket at once; nil for those that OpenSSL asks for.
        var receiveSize: Int?
        /// How many of the bytes in the memory OpenSSL has read.
        var readCount = 0
        /// Whether the socket has nothing left, as far as is known, or is not asked.
        var isDrained = false
    }

    /// What is received at once where nothing else is known: a record with its head and its end.
    private static let recordSize = 16_384 + 256

    /// Bytes of the socket that OpenSSL has not read.
    private var received: ArraySlice<UInt8> = []
    /// Whether the socket is at its end.
    private(set) var isAtEnd = false
    /// Why the socket could not be read.
    private(set) var receiveError: Errno?
    /// Why bytes are lost that the peer should have got; nothing is sent after them.
    private(set) var sendError: Errno?
    /// The call in progress; nil between calls.
    private var call: Call?

    /// Whether no bytes have been received that OpenSSL has not read; between calls.
    var isEmpty: Bool { received.isEmpty }

    /// Takes bytes that were received before the first call.
    mutating func take(_ received: [UInt8]) { self.received = received[...] }

    mutating func begin(over wire: SocketWire, _ receiving: Receiving) {
        var call = Call(wire: wire)
        switch receiving {
        case .nothing: call.isDrained = true
        case .whatIsAsked: break
        case .clearBytes(let count):
            // The overhead of a record is 22 bytes, or 29 in TLS 1.2.
            let size = max(count + count / 512 + 64, Self.recordSize)
            call.receiveSize = min(size, ThreadMemory.inputSize)
        }
        self.call = call
    }

    mutating func end() {
        leaveThreadMemory()
        call = nil
    }

    /// Leaves the memory of the thread to other connections.
    mutating func leaveThreadMemory() {
        flush()
        let (memory, readCount) = (call!.memory, call!.readCount)
        if readCount < memory.input.count { received = Array(memory.input[readCount...])[...] }
        memory.input.removeAll(keepingCapacity: true)
        call!.readCount = 0
    }

    // MARK: Called by OpenSSL

    /// Reads as many bytes of the socket as `target` has room for. Returns 0 if there are none.
    mutating func read(into target: inout MutableRawSpan) -> Int {
        if !received.isEmpty {
            let taken = target.copy(unsafe received.span.bytes)
            received = taken == received.count ? [] : received.dropFirst(taken)
            return taken
        }
        let memory = call!.memory
        if call!.readCount == memory.input.count { fill(asked: target.byteCount) }
        let start = call!.readCount
        let taken = memory.input.withBytes { target.copy($0.extracting(droppingFirst: start)) }
        call!.readCount += taken
        return taken
    }

    /// Whether ``read(into:)`` may have bytes later.
    var mayReadLater: Bool { !isAtEnd && receiveError == nil }

    /// Receives bytes from the socket.
    private mutating func fill(asked count: Int) {
        let memory = call!.memory
        memory.input.removeAll(keepingCapacity: true)
        call!.readCount = 0
        guard !call!.isDrained, !isAtEnd, receiveError == nil else { return }
        let (wire, size) = (call!.wire, call!.receiveSize ?? min(count, ThreadMemory.inputSize))
        do throws(Errno) {
            let count = try memory.input.append(upTo: size) { (room) throws(Errno) in
                try wire.receive(into: &room) ?? -1
            }
            isAtEnd = count == 0
            // With less than asked for the socket is empty; the kernel reports what comes later.
            call!.isDrained = count < size
        } catch {
            receiveError = error
        }
    }

    /// Takes bytes for the socket: up to four records at once, which the memory has room for.
    mutating func write(_ bytes: RawSpan) {
        let (count, memory) = (bytes.byteCount, call!.memory)
        precondition(count <= ThreadMemory.outputSize, "OpenSSL has written \(count) bytes at once")
        if memory.output.count + count > ThreadMemory.outputSize { flush() }
        memory.output.append(bytes)
    }

    private mutating func flush() {
        guard let call, !call.memory.output.isEmpty else { return }
        defer { call.memory.output.removeAll(keepingCapacity: true) }
        if sendError != nil { return }
        do throws(Errno) {
            try call.memory.output.withBytes { (bytes) throws(Errno) in try call.wire.send(bytes) }
        } catch { sendError = error }
    }
}

/// Memory of one thread for the calls of any connection, which the thread's end frees.
///
/// A call begins and ends with it empty, and a call within that one begins after
/// ``SocketBytes/leaveThreadMemory()``, so two calls never use it at once.
private final class ThreadMemory {
    /// Four records that are received at once.
    static let inputSize = 65_536
    /// Four records that are sent at once, with their heads and ends.
    static let outputSize = 65_536 + 1024

    var input: [UInt8] = []
    var output: [UInt8] = []

    private init() {
        input.reserveCapacity(Self.inputSize)
        output.reserveCapacity(Self.outputSize)
    }

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let code = unsafe pthread_key_create(&key) {
            _ = unsafe CallbackContext.take($0, as: ThreadMemory.self)
        }
        precondition(code == 0, "cannot make a key for a thread's memory: \(Errno(rawValue: code))")
        return key
    }()

    static var current: ThreadMemory {
        if let known = unsafe pthread_getspecific(key) { return unsafe CallbackContext.object(known) }
        let new = ThreadMemory()
        unsafe pthread_setspecific(key, CallbackContext.retain(new))
        return new
    }
}
