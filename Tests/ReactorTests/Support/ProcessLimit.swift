import CReactorTestSupport
import Glibc

/// Calls `body` while no process and no thread can be made. The process has the user `nobody` from then on: the
/// limit does not hold for root.
func withoutProcesses<Result>(_ body: () throws -> Result) rethrows -> Result {
    reactor_test_become_nobody()
    let resource = __rlimit_resource_t(__RLIMIT_NPROC.rawValue)
    var (usual, none) = (rlimit(), rlimit())
    getrlimit(resource, &usual)
    none.rlim_max = usual.rlim_max
    setrlimit(resource, &none)
    // libdispatch may need threads later, and waits for them.
    defer { setrlimit(resource, &usual) }
    return try body()
}

/// Calls `body` while the process can open no descriptor.
func withoutDescriptors<Result>(_ body: () throws -> Result) rethrows -> Result {
    let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    var (usual, none) = (rlimit(), rlimit())
    getrlimit(resource, &usual)
    none.rlim_max = usual.rlim_max
    setrlimit(resource, &none)
    defer { setrlimit(resource, &usual) }
    return try body()
}
