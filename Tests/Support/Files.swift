import Glibc
package import SystemPackage

/// A temporary directory, which is removed with all that is in it when it is released.
package final class TemporaryFolder: Sendable {
    package let path: FilePath

    package init() {
        var template = Array("/tmp/reactor-XXXXXX".utf8CString)
        precondition(mkdtemp(&template) != nil, "cannot create a temporary directory")
        path = FilePath(String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self))
    }

    deinit { removeTree(path.string) }

    package var names: [String] { entries(of: path.string) }

    package func path(_ name: String) -> String { path.appending(name).string }

    package func file(_ content: some Sequence<UInt8>, name: String = "file") throws -> FilePath {
        let file = path.appending(name)
        let descriptor = try FileDescriptor.open(
            file, .writeOnly, options: [.create, .truncate], permissions: .ownerReadWrite)
        try descriptor.closeAfter { _ = try descriptor.writeAll(content) }
        return file
    }

    package func fifo(name: String = "fifo") -> FilePath {
        let file = path.appending(name)
        mkfifo(file.string, 0o600)
        return file
    }
}

private func removeTree(_ path: String) {
    for name in entries(of: path) where unlink("\(path)/\(name)") != 0 { removeTree("\(path)/\(name)") }
    rmdir(path)
}

/// A temporary file, which is removed when it is released.
package final class TemporaryFile: Sendable {
    private let folder = TemporaryFolder()
    package let path: FilePath

    package init(_ bytes: some Sequence<UInt8>) throws { path = try folder.file(bytes) }

    package convenience init(_ text: String) throws { try self.init(text.utf8) }
}

package func entries(of directory: String) -> [String] {
    guard let stream = opendir(directory) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if name != ".", name != ".." { names.append(name) }
    }
    return names
}

/// The bytes of a file; nil if there is none.
package func content(of path: String) -> [UInt8]? {
    guard let file = try? FileDescriptor.open(FilePath(path), .readOnly) else { return nil }
    defer { try? file.close() }
    var (bytes, piece) = ([UInt8](), [UInt8](repeating: 0, count: 65_536))
    while let count = try? piece.withUnsafeMutableBytes({ try file.read(into: $0) }), count > 0 {
        bytes += piece[..<count]
    }
    return bytes
}

/// The most memory of the process that was resident, in bytes: VmHWM of proc_pid_status(5).
package func peakResidentSize() throws -> Int {
    let lines = String(decoding: content(of: "/proc/self/status") ?? [], as: UTF8.self).split(separator: "\n")
    let size = lines.first { $0.hasPrefix("VmHWM:") }?.split(separator: " ")[1]
    guard let size, let kibibytes = Int(size) else { throw Errno.notSupported }
    return kibibytes << 10
}
