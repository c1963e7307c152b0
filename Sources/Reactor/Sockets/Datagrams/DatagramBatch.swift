import CReactorLinux
import Glibc
import SystemPackage

/// Datagrams that were received with one system call, to be delivered one by one. The buffer is reused: receiving allocates
/// nothing.
///
/// `@safe`: the storage is this object's alone, and datagrams are only read below the count that was received.
@safe
final class DatagramBatch {
    /// Receives a datagram's bytes, borrowed until it returns; returns whether it takes the next one.
    typealias Receiver = (RawSpan, DatagramSocket.Metadata) -> Bool

    /// The limit of datagrams that one system call receives. Measured: with sixteen, each costs a quarter less than alone; more
    /// gain little, and delay the loop's other items.
    private static let capacity = 16
    /// The limit of the buffer in bytes, unless a single datagram needs more.
    private static let memoryLimit = 1 << 20

    @safe private let storage: OpaquePointer
    private var next: UInt32 = 0
    private var count: UInt32 = 0

    init(_ options: DatagramSocket.Options) throws(Errno) {
        let capacity = min(Self.capacity, max(1, Self.memoryLimit / options.datagramLimit))
        let control = reactor_control_size(UInt32(options.descriptorLimit), options.receivesCredentials)
        guard let storage = unsafe reactor_datagrams_make(UInt32(capacity), options.datagramLimit, control)
        else { throw .noMemory }
        unsafe self.storage = storage
    }

    deinit {
        deliver { _, metadata in
            for descriptor in metadata.descriptors { _ = OwnedDescriptor(descriptor.rawValue) }
            return true
        }
        unsafe reactor_datagrams_free(storage)
    }

    var isEmpty: Bool { next == count }

    /// Delivers the remaining datagrams, or if there are none, those that one system call receives.
    func receive(from descriptor: FileDescriptor, _ receiver: Receiver) throws(Errno) {
        if isEmpty {
            (next, count) = (0, 0)
            do throws(Errno) {
                count = UInt32(
                    try SystemCall.make { reactor_datagrams_receive(storage, descriptor.rawValue) })
            } catch .resourceTemporarilyUnavailable {}
        }
        deliver(receiver)
    }

    private func deliver(_ receiver: Receiver) {
        var mayHaveMore = true
        let network = currentTimeSource?.network
        while mayHaveMore, !isEmpty {
            let raw = reactor_datagrams_at(storage, next)
            next += 1
            let descriptors = unsafe UnsafeBufferPointer(start: raw.descriptors, count: raw.descriptor_count)
            let metadata = unsafe DatagramSocket.Metadata(
                sender: network?.sender(of: SocketAddress(raw.sender)) ?? SocketAddress(raw.sender),
                byteCount: raw.length, isTruncated: raw.count < raw.length,
                credentials: PeerCredentials(raw.credentials),
                descriptors: descriptors.map { FileDescriptor(rawValue: $0) },
                hasLostDescriptors: raw.has_lost_descriptors)
            mayHaveMore = unsafe receiver(
                UnsafeRawBufferPointer(start: raw.bytes, count: raw.count).bytes, metadata)
        }
    }
}
