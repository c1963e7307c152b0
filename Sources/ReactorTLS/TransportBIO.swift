import CReactorOpenSSL
import Glibc
import SystemPackage

/// How OpenSSL reads and writes the bytes of a socket: from and to the memory of a ``TLSTransport``'s call.
enum TransportBIO {
    /// `nonisolated(unsafe)` is right: it does not change once it is made.
    nonisolated(unsafe) static let method: OpaquePointer? = {
        let method = unsafe BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "reactor")
        unsafe BIO_meth_set_read(method) { bio, target, count in
            unsafe reactor_bio_clear_retry(bio)
            let taken = unsafe transport(bio).read(into: target!, Int(count))
            guard taken == 0 else { return CInt(taken) }
            if unsafe transport(bio).mayReadLater { unsafe reactor_bio_retry_read(bio) }
            return -1
        }
        unsafe BIO_meth_set_write(method) { bio, source, count in
            unsafe reactor_bio_clear_retry(bio)
            unsafe transport(bio).write(source!, Int(count))
            return count
        }
        unsafe BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 }
        return unsafe method
    }()

    private static func transport(_ bio: OpaquePointer?) -> TLSTransport {
        unsafe Unmanaged<TLSTransport>.fromOpaque(BIO_get_data(bio)).takeUnretainedValue()
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

    let start: UnsafeMutableRawPointer

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let code = unsafe pthread_key_create(&key) { unsafe free($0) }
        precondition(code == 0, "cannot make a key for a thread's memory: \(Errno(rawValue: code))")
        return key
    }()

    static var current: ThreadMemory {
        if let known = unsafe pthread_getspecific(key) { return unsafe ThreadMemory(start: known) }
        let new = unsafe malloc(inputSize + outputSize)!
        unsafe pthread_setspecific(key, new)
        return unsafe ThreadMemory(start: new)
    }

    func input(_ range: Range<Int>) -> [UInt8] {
        unsafe Array(UnsafeRawBufferPointer(start: start + range.lowerBound, count: range.count))
    }
}
