import Glibc

/// A network interface of this machine, such as `lo`; netdevice(7).
public struct NetworkInterface: Sendable, Hashable {
    /// The kernel's number, from 1; 0 for ``any``.
    public let index: UInt32

    /// The interface of that number.
    public init(index: UInt32) { self.index = index }

    /// Finds an interface by its name (if_nametoindex(3)); nil if there is none.
    public init?(named name: String) {
        guard !name.utf8.contains(0) else { return nil }
        index = unsafe if_nametoindex(name)
        if index == 0 { return nil }
    }

    /// The kernel's choice.
    public static let any = NetworkInterface(index: 0)

    /// The interface's name (if_indextoname(3)); nil for ``any``, or if the interface no longer exists.
    package var name: String? {
        String(size: Int(IF_NAMESIZE)) { unsafe UnsafePointer(if_indextoname(index, $0)) }
    }
}

extension NetworkInterface: CustomStringConvertible {
    /// The interface's name, or its number if it has none.
    public var description: String { name ?? "\(index)" }
}
