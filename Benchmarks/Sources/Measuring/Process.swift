import Glibc

/// The resident memory of this process, in bytes.
public func residentBytes() -> Int64 {
    guard let file = fopen("/proc/self/statm", "r") else { return 0 }
    defer { fclose(file) }
    var line = [UInt8](repeating: 0, count: 128)
    let count = fread(&line, 1, line.count, file)
    let fields = String(decoding: line.prefix(count), as: UTF8.self).split(separator: " ")
    return Int64(fields[1])! * Int64(sysconf(CInt(_SC_PAGESIZE)))
}

/// Raises the limit on open descriptors to `count`. Exceeding the hard limit requires root.
public func allowDescriptors(_ count: Int) {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    limit.rlim_cur = max(limit.rlim_cur, rlim_t(count))
    limit.rlim_max = max(limit.rlim_max, limit.rlim_cur)
    if setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) != 0 { perror("setrlimit") }
}

/// Three numeric arguments, beginning with the argument `first`. Missing ones are zero.
public func numbers(from first: Int) -> (Int, Int, Int) {
    let numbers = CommandLine.arguments.dropFirst(first).map { Int($0) ?? 0 } + [0, 0, 0]
    return (numbers[0], numbers[1], numbers[2])
}
