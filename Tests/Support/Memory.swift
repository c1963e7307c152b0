import SystemPackage

/// The most memory of the process that was resident, in bytes: VmHWM of proc_pid_status(5).
package func peakResidentSize() throws -> Int {
    let lines = String(decoding: content(of: "/proc/self/status") ?? [], as: UTF8.self).split(separator: "\n")
    let size = lines.first { $0.hasPrefix("VmHWM:") }?.split(separator: " ")[1]
    guard let size, let kibibytes = Int(size) else { throw Errno.notSupported }
    return kibibytes << 10
}
