import Glibc

/// A network interface of this machine, such as `lo`; netdevice(7).
public struct NetworkInterface: Sendable, Hashable {
    /// The kernel's number, from one; zero for ``any``.
    public let index: UInt32

    /// Names an interface by the kernel's number.
    public init(index: UInt32) { self.index = index }

    /// Finds the interface of that name; nil if there is none now. It stands on if_nametoindex(3).
    public init?(named name: String) {
        guard !name.utf8.contains(0) else { return nil }
        index = unsafe if_nametoindex(name)
        if index == 0 { return nil }
    }

    /// Whichever the kernel chooses.
    public static let any = NetworkInterface(index: 0)

    /// The interface's name; nil for ``any``, and if it is gone. It stands on if_indextoname(3).
    public var name: String? {
        unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(IF_NAMESIZE)) { buffer in
            guard let name = unsafe if_indextoname(index, buffer.baseAddress!) else { return nil }
            return unsafe String(cString: name)
        }
    }
}

extension NetworkInterface: CustomStringConvertible {
    /// The interface's name, or else its number.
    public var description: String { name ?? "\(index)" }
}
