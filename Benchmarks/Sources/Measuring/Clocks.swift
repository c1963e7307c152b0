import Glibc

/// Nanoseconds of the monotonic clock.
public func now() -> Int64 { read(CLOCK_MONOTONIC) }

/// Nanoseconds that this process has spent on processors, its own and the kernel's work for it.
public func processorTime() -> Int64 { read(CLOCK_PROCESS_CPUTIME_ID) }

private func read(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
}
