import CReactorTestSupport
import Glibc

/// Calls `body` while no process and no thread can be made. The process has the user `nobody` from then on: the
/// limit does not hold for root.
func withoutProcesses<Result>(_ body: () throws -> Result) rethrows -> Result {
    reactor_test_become_nobody()
    // libdispatch may need threads later, and waits for them.
    return try withNone(of: __rlimit_resource_t(__RLIMIT_NPROC.rawValue), body)
}

/// Calls `body` while the process can open no descriptor.
func withoutDescriptors<Result>(_ body: () throws -> Result) rethrows -> Result {
    try withNone(of: __rlimit_resource_t(RLIMIT_NOFILE.rawValue), body)
}

private func withNone<Result>(of resource: __rlimit_resource_t, _ body: () throws -> Result) rethrows
    -> Result
{
    var (usual, none) = (rlimit(), rlimit())
    getrlimit(resource, &usual)
    none.rlim_max = usual.rlim_max
    setrlimit(resource, &none)
    defer { setrlimit(resource, &usual) }
    return try body()
}
