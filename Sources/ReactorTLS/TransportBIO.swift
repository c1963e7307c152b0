import CReactorOpenSSL
import Glibc
import Reactor
import SystemPackage

/// How OpenSSL reads and writes the bytes of a socket: from and to the memory of a ``TLSTransport``'s call.
enum TransportBIO {
    /// OpenSSL's table of the functions below. It is made once, and never freed.
    static var method: OpaquePointer? { unsafe OpaquePointer(bitPattern: address) }

    private static let address: UInt = {
        let method = unsafe BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "reactor")
        unsafe BIO_meth_set_read(method) { bio, target, count in
            reactor_bio_clear_retry(bio)
            let transport = transport(bio)
            var room = unsafe UnsafeMutableRawBufferPointer(start: target, count: Int(count)).mutableBytes
            let taken = transport.read(into: &room)
            guard taken == 0 else { return CInt(taken) }
            if transport.mayReadLater { reactor_bio_retry_read(bio) }
            return -1
        }
        unsafe BIO_meth_set_write(method) { bio, source, count in
            reactor_bio_clear_retry(bio)
            transport(bio).write(unsafe UnsafeRawBufferPointer(start: source, count: Int(count)).bytes)
            return count
        }
        unsafe BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 }
        return UInt(bitPattern: method)
    }()

    /// `@safe`: only the functions above call it, with a BIO of a ``OpenSSLConnection``, whose transport outlives it.
    @safe
    private static func transport(_ bio: OpaquePointer?) -> TLSTransport {
        unsafe CallbackContext.object(BIO_get_data(bio))
    }
}

/// Memory of one thread for the calls of any connection.
///
/// `@safe` is right: a ``TLSTransport/Call`` alone keeps it, which ends before the thread returns from the
/// call, and a call within that one begins after `leaveThreadMemory()`, so both never use it at once. The
/// thread's end frees it.
@safe
struct ThreadMemory {
    /// Four records that are received at once.
    static let inputSize = 65_536
    /// Four records that are sent at once, with their heads and ends.
    static let outputSize = 65_536 + 1024

    private let input, output: UnsafeMutableRawBufferPointer

    private init(_ start: UnsafeMutableRawPointer) {
        unsafe input = UnsafeMutableRawBufferPointer(start: start, count: Self.inputSize)
        unsafe output = UnsafeMutableRawBufferPointer(start: start + Self.inputSize, count: Self.outputSize)
    }

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let code = unsafe pthread_key_create(&key) { unsafe free($0) }
        precondition(code == 0, "cannot make a key for a thread's memory: \(Errno(rawValue: code))")
        return key
    }()

    static var current: ThreadMemory {
        if let known = unsafe pthread_getspecific(key) { return unsafe ThreadMemory(known) }
        let new = unsafe malloc(inputSize + outputSize)!
        unsafe pthread_setspecific(key, new)
        return unsafe ThreadMemory(new)
    }

    /// Calls `body` with received bytes.
    func withInput<Result>(_ range: Range<Int>, _ body: (RawSpan) -> Result) -> Result {
        body(unsafe input.bytes.extracting(range))
    }

    /// Calls `body` with the room for `count` bytes that are received.
    func withInputRoom<Result>(
        _ count: Int, _ body: (inout MutableRawSpan) throws(Errno) -> Result
    ) throws(Errno) -> Result {
        var room = unsafe UnsafeMutableRawBufferPointer(rebasing: input[..<count]).mutableBytes
        return try body(&room)
    }

    /// Adds bytes to be sent to the first `count` ones.
    func copyOutput(_ bytes: RawSpan, to count: Int) {
        var room = unsafe UnsafeMutableRawBufferPointer(rebasing: output[count...]).mutableBytes
        _ = room.copy(bytes)
    }

    /// Calls `body` with the first `count` bytes to be sent.
    func withOutput(_ count: Int, _ body: (RawSpan) throws(Errno) -> Void) throws(Errno) {
        try body(unsafe output.bytes.extracting(first: count))
    }
}
