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

struct reactor_condition {
    _Atomic uint32_t generation;
    _Atomic uint32_t waiting;
};

struct reactor_condition *reactor_condition_make(void) {
    struct reactor_condition *condition = calloc(1, sizeof *condition);
    if (!condition) abort();
    return condition;
}

void reactor_condition_free(struct reactor_condition *condition) { free(condition); }

uint32_t reactor_condition_generation(const struct reactor_condition *condition) { return condition->generation; }

// A thread counts itself as waiting before the kernel compares the generation, and this changes the generation before it
// looks who waits: one of the two sees the other. Without a thread that waits there is no system call.
void reactor_condition_broadcast(struct reactor_condition *condition) {
    condition->generation++;
    if (condition->waiting)
        syscall(SYS_futex, &condition->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool reactor_condition_wait(struct reactor_condition *condition, uint32_t generation, int64_t deadline) {
    if (deadline < 0) deadline = 0;
    struct timespec limit = {deadline / 1000000000, deadline % 1000000000};
    struct timespec *time = deadline == INT64_MAX ? NULL : &limit;
    bool is_late = false;
    condition->waiting++;
    // The bitset variant takes a point in time of CLOCK_MONOTONIC, where FUTEX_WAIT takes a duration.
    while (condition->generation == generation && !is_late)
        is_late = syscall(SYS_futex, &condition->generation, FUTEX_WAIT_BITSET_PRIVATE, generation, time, NULL,
                          FUTEX_BITSET_MATCH_ANY) == -1 && errno == ETIMEDOUT;
    condition->waiting--;
    return condition->generation != generation;
}
