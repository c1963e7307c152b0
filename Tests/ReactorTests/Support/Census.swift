import Glibc

/// How many descriptors the process has open. Only of use in a process where no other code opens any.
func ownDescriptors() -> Int { entries(of: "/proc/self/fd").count }

/// How many threads the process has whose names begin with `prefix`: those of Dispatch come and go.
func ownThreads(named prefix: String) -> Int {
    entries(of: "/proc/self/task").count { task in
        guard let file = fopen("/proc/self/task/\(task)/comm", "r") else { return false }
        defer { fclose(file) }
        var name = [CChar](repeating: 0, count: 17)
        return fgets(&name, 17, file) != nil && strncmp(name, prefix, strlen(prefix)) == 0
    }
}
