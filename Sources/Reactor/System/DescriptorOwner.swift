import Glibc
import Synchronization

/// The owner of a descriptor, which closes it. A debug build traps when the owner of a descriptor's number is another one.
///
/// Code that closes a descriptor twice closes what has been opened under the same number meanwhile. The call succeeds, and
/// the fault shows elsewhere: in a stream that reads another one's bytes.
package struct DescriptorOwner: Sendable {
    #if DEBUG
    private let tag = tags.add(1, ordering: .relaxed).newValue
    #endif

    package init() {}

    /// An owner of `number` from now on, which is a run loop if `isLoop`.
    package init(of number: CInt, isLoop: Bool = false) { take(number, isLoop: isLoop) }

    /// Becomes the owner of `number`. Does nothing if it is already.
    package func take(_ number: CInt, isLoop: Bool = false) {
        #if DEBUG
        Self.update { owners in
            let owner = owners.updateValue((tag, isLoop), forKey: number)
            if let owner, owner.tag != tag {
                fatalError(
                    "Descriptor \(number) has two owners. Other code has closed it, or it was given to two objects that "
                        + "close it.")
            }
        }
        #endif
    }

    /// Gives `number` up.
    package func release(_ number: CInt) {
        #if DEBUG
        Self.update { owners in
            guard owners.removeValue(forKey: number)?.tag == tag else {
                fatalError("Descriptor \(number) was closed, or given up, by an object that does not own it.")
            }
        }
        #endif
    }

    /// Closes `number`, which this owns.
    package func close(_ number: CInt) {
        release(number)
        if let network = currentTimeSource?.network { return network.close(number) }
        _ = Glibc.close(number)
    }

    /// The descriptors that have an owner, and whether that is a run loop; none in an optimized build.
    package static var all: [CInt: Bool] {
        #if DEBUG
        return owners.withLock { $0.mapValues(\.isLoop) }
        #else
        return [:]
        #endif
    }

    /// Called before a second thread of the library begins. In a child of fork(2), two threads that initialize a static
    /// property at the same time wait forever: Swift's runtime takes the thread that has called fork for the parent's.
    package static func prepare() {
        #if DEBUG
        _ = (tags.load(ordering: .relaxed), process, owners.withLockIfAvailable { $0.count })
        #endif
    }

    #if DEBUG
    private static let tags = Atomic<UInt64>(0)
    /// The owner of each descriptor that has one.
    private static let owners = Mutex<[CInt: (tag: UInt64, isLoop: Bool)]>([:])
    private static let process = ProcessIdentity.current

    /// In a child of fork(2), in which a thread of the parent may have locked the owners, this does nothing.
    private static func update(_ body: (inout [CInt: (tag: UInt64, isLoop: Bool)]) -> Void) {
        if process.isCurrent { owners.withLock { body(&$0) } }
    }
    #endif
}
