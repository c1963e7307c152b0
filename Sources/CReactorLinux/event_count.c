#define _GNU_SOURCE
#include "CReactorLinux.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct reactor_event_count {
    _Atomic uint32_t generation;
    _Atomic uint32_t waiting;
};

struct reactor_event_count *reactor_event_count_make(void) {
    struct reactor_event_count *count = calloc(1, sizeof *count);
    if (!count) abort();
    return count;
}

void reactor_event_count_free(struct reactor_event_count *count) { free(count); }

uint32_t reactor_event_count_generation(const struct reactor_event_count *count) { return count->generation; }

// A thread counts itself as waiting before the kernel compares the generation, and this changes the generation before it
// looks who waits: one of the two sees the other. Without a thread that waits there is no system call.
void reactor_event_count_broadcast(struct reactor_event_count *count) {
    count->generation++;
    if (count->waiting)
        syscall(SYS_futex, &count->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool reactor_event_count_wait(struct reactor_event_count *count, uint32_t generation, int64_t deadline) {
    if (deadline < 0) deadline = 0;
    struct timespec limit = {deadline / 1000000000, deadline % 1000000000};
    struct timespec *time = deadline == INT64_MAX ? NULL : &limit;
    bool is_late = false;
    count->waiting++;
    // The bitset variant takes a point in time of CLOCK_MONOTONIC, where FUTEX_WAIT takes a duration.
    while (count->generation == generation && !is_late)
        is_late = syscall(SYS_futex, &count->generation, FUTEX_WAIT_BITSET_PRIVATE, generation, time, NULL,
                          FUTEX_BITSET_MATCH_ANY) == -1 && errno == ETIMEDOUT;
    count->waiting--;
    return count->generation != generation;
}
