import Reactor
import SystemPackage

// Prints what is mounted whenever that changes.
let mounts = try FileDescriptor.open("/proc/self/mounts", .readOnly)
for try await _ in RunLoop.main.readiness(of: mounts, for: .priority) {
    let table = try await InputStream(path: "/proc/self/mounts").readToEnd(limit: 1 << 20)
    print(String(decoding: table, as: UTF8.self))
}
