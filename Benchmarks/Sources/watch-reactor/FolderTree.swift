import Glibc

/// Folders below "in/top" of a folder; "out" is beside "in".
struct FolderTree: Sendable {
    let base: String
    /// The folders below "in/top", parents first.
    private let names: [String]

    init(_ base: String, _ count: Int, isWide: Bool) {
        self.base = base
        var names: [String] = []
        while names.count < count {
            let index = names.count
            names.append(isWide || index % 100 == 0 ? "\(index)" : "\(index / 100 * 100)/\(index % 100)")
        }
        self.names = names
        for name in ["in", "out", "in/top"] { mkdir("\(base)/\(name)", 0o755) }
        for name in names { mkdir("\(base)/in/top/\(name)", 0o755) }
    }

    /// "in", "top" and the others.
    var count: Int { names.count + 2 }

    func move(_ old: String, _ new: String) { rename("\(base)/\(old)", "\(base)/\(new)") }

    func remove() {
        for name in names.reversed() { rmdir("\(base)/in/top/\(name)") }
        rmdir("\(base)/in/top")
    }

    func removeRest() { for name in ["in", "out", ""] { rmdir("\(base)/\(name)") } }
}
