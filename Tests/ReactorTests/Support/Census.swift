import Glibc
import Reactor

/// How many descriptors the process has open. Only of use in a process where no other code opens any.
///
/// libdispatch's own are open before the first count. The files of /proc in which it looks at its threads, once a second,
/// are not counted.
func ownDescriptors() -> Int {
    _ = startedDispatch
    return entries(of: "/proc/self/fd").count { number in
        var target = [CChar](repeating: 0, count: 256)
        readlink("/proc/self/fd/\(number)", &target, 255)
        return strncmp(target, "/proc/", 6) != 0 || strstr(target, "/task/") == nil
    }
}

/// Returns once the library has had libdispatch open its descriptors.
private let startedDispatch: Void = DispatchWorkers.run {}

/// How many threads the process has whose names begin with `prefix`: those of Dispatch come and go.
func ownThreads(named prefix: String) -> Int {
    entries(of: "/proc/self/task").count { task in
        guard let file = fopen("/proc/self/task/\(task)/comm", "r") else { return false }
        defer { fclose(file) }
        var name = [CChar](repeating: 0, count: 17)
        return fgets(&name, 17, file) != nil && strncmp(name, prefix, strlen(prefix)) == 0
    }
}
