import CReactorLinux
import Glibc
import SystemPackage

/// Datagrams that were read with one system call, and wait to be delivered one after the other.
///
/// The memory is used again for the next ones: receiving allocates nothing.
@safe
final class DatagramBatch {
    /// The most datagrams that one system call reads. Sixteen cost a quarter less each than one by one; beyond
    /// that there is little to gain, and the loop's other items would wait longer.
    private static let capacity = 16
    /// The most memory for datagrams, unless a single one may have more.
    private static let memoryLimit = 1 << 20

    private let storage: OpaquePointer
    private var next: UInt32 = 0
    private var count: UInt32 = 0

    init(datagramLimit: Int) throws(Errno) {
        let capacity = min(Self.capacity, max(1, Self.memoryLimit / datagramLimit))
        guard let storage = unsafe reactor_datagrams_make(UInt32(capacity), datagramLimit) else {
            throw .noMemory
        }
        unsafe self.storage = storage
    }

    deinit { unsafe reactor_datagrams_free(storage) }

    /// Whether all that was read has been taken.
    var isEmpty: Bool { next == count }

    /// Reads what has come in; false if there is nothing.
    func receive(from descriptor: FileDescriptor) throws(Errno) -> Bool {
        do throws(Errno) {
            (next, count) = (0, 0)
            count = UInt32(
                try SystemCall.make { unsafe reactor_datagrams_receive(storage, descriptor.rawValue) })
            return count > 0
        } catch .resourceTemporarilyUnavailable {
            return false
        }
    }

    /// Takes the next datagram, and calls `body` with it and its bytes.
    func takeNext(_ body: (RawSpan, DatagramSocket.Datagram) -> Void) {
        let raw = unsafe reactor_datagrams_at(storage, next)
        next += 1
        let datagram = unsafe DatagramSocket.Datagram(
            sender: SocketAddress(UnsafeRawBufferPointer(start: raw.sender, count: raw.sender_length).bytes),
            byteCount: raw.length,
            isTruncated: raw.count < raw.length)
        unsafe body(UnsafeRawBufferPointer(start: raw.bytes, count: raw.count).bytes, datagram)
    }
}
