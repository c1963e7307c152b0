import Glibc
import Reactor
import SystemPackage

/// Lets the process fail at its exit if tests have left descriptors or threads.
///
/// The threads that the library and libdispatch keep for the whole process, and their pollers, do not count.
enum LeakCheck {
    /// Of a thread that is to last as long as the process: the library's own, libdispatch's, and those that test support starts.
    private static let residentNames = ["reactor.", "root.", "com.apple.", "-qos", "SWT ", "test limits"]
    /// A loop's pollers, and libdispatch's. A loop that was left shows as its thread.
    private static let pollers = ["anon_inode:[eventpoll]", "anon_inode:[eventfd]", "anon_inode:[timerfd]"]
    /// What was open when the first test began.
    private static let initial = descriptors()

    static func start() {
        _ = initial
        atexit {
            let left = LeakCheck.leftDescriptors() + LeakCheck.leftThreads()
            guard !left.isEmpty else { return }
            let line = "Left by tests: \(left.joined(separator: ", "))\n"
            _ = try? FileDescriptor.standardError.writeAll(line.utf8)
            _exit(EXIT_FAILURE)
        }
    }

    private static func leftDescriptors() -> [String] {
        descriptors().filter { initial[$0.key] != $0.value && !pollers.contains($0.value) }
            .map { "descriptor \($0.key) (\($0.value))" }.sorted()
    }

    private static func leftThreads() -> [String] {
        let names = entries(of: "/proc/self/task").filter { $0 != "\(getpid())" }.compactMap { thread in
            firstLine(of: FilePath("/proc/self/task/\(thread)/comm"))
        }
        return names.filter { name in !residentNames.contains { name.contains($0) } }.map { "thread '\($0)'" }
    }

    /// The open descriptors, and what each refers to. Without files of /proc: libdispatch opens some for a moment.
    private static func descriptors() -> [String: String] {
        var result: [String: String] = [:]
        for number in entries(of: "/proc/self/fd") {
            var target = [UInt8](repeating: 0, count: 256)
            let length = unsafe target.withUnsafeMutableBytes {
                unsafe readlink(
                    "/proc/self/fd/\(number)", $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
            }
            guard length > 0 else { continue }
            let text = String(decoding: target.prefix(length), as: UTF8.self)
            if !text.hasPrefix("/proc/") { result[number] = text }
        }
        return result
    }

    private static func entries(of folder: String) -> [String] {
        guard let stream = unsafe opendir(folder) else { return [] }
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) {
                unsafe String(cString: $0.bindMemory(to: CChar.self).baseAddress!)
            }
            if !name.hasPrefix(".") { names.append(name) }
        }
        return names
    }
}
