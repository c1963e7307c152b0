import Glibc

/// The monotonic clock, in nanoseconds.
public func now() -> Int64 { read(CLOCK_MONOTONIC) }

/// The user and system processor time of this process, in nanoseconds.
public func processorTime() -> Int64 { read(CLOCK_PROCESS_CPUTIME_ID) }

/// The same of this thread.
public func threadTime() -> Int64 { read(CLOCK_THREAD_CPUTIME_ID) }

private func read(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
}
