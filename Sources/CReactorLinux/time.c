#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "CReactorLinux.h"

int (*reactor_clock_gettime)(clockid_t, struct timespec *) = clock_gettime;

struct reactor_clock {
    /// The monotonic time while it stands still; 0 while it runs.
    _Atomic int64_t stopped_at;
    /// How far the running monotonic time is ahead of the kernel's.
    _Atomic int64_t offset;
    /// How far the other clocks are ahead of the monotonic time.
    _Atomic int64_t wall_clock, boot_time;
};

static _Thread_local struct {
    struct reactor_clock *clock;
    void *source;
} replaced;

static int64_t kernel_time(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static _Atomic int64_t *lead(struct reactor_clock *clock, clockid_t other) {
    return other == CLOCK_REALTIME ? &clock->wall_clock : &clock->boot_time;
}

struct reactor_clock *reactor_clock_make(void) {
    struct reactor_clock *clock = calloc(1, sizeof *clock);
    if (!clock) abort();
    clock->stopped_at = kernel_time(CLOCK_MONOTONIC);
    clock->wall_clock = kernel_time(CLOCK_REALTIME) - clock->stopped_at;
    clock->boot_time = kernel_time(CLOCK_BOOTTIME) - clock->stopped_at;
    return clock;
}

void reactor_clock_free(struct reactor_clock *clock) { free(clock); }

int64_t reactor_clock_now(struct reactor_clock *clock) {
    int64_t now = clock->stopped_at;
    return now ? now : kernel_time(CLOCK_MONOTONIC) + clock->offset;
}

void reactor_clock_stop(struct reactor_clock *clock, int64_t time) { clock->stopped_at = time; }

void reactor_clock_run(struct reactor_clock *clock) {
    int64_t time = clock->stopped_at;
    if (!time) return;
    clock->offset = time - kernel_time(CLOCK_MONOTONIC);
    clock->stopped_at = 0;
}

int64_t reactor_clock_lead(struct reactor_clock *clock, clockid_t other) { return *lead(clock, other); }

void reactor_clock_set_lead(struct reactor_clock *clock, clockid_t other, int64_t nanoseconds) {
    *lead(clock, other) = nanoseconds;
}

/// clock_gettime(2) for all threads, once the time of one was replaced.
static int replaced_gettime(clockid_t clock, struct timespec *time) {
    if (!replaced.clock) return clock_gettime(clock, time);
    int64_t now = reactor_clock_now(replaced.clock);
    if (clock != CLOCK_MONOTONIC) now += *lead(replaced.clock, clock);
    time->tv_sec = now / 1000000000;
    time->tv_nsec = now % 1000000000;
    return 0;
}

// How many threads have another time than the kernel's.
static _Atomic int replaced_count;

void reactor_replace_time(struct reactor_clock *clock, void *source) {
    int change = (clock != NULL) - (replaced.clock != NULL);
    replaced.clock = clock;
    replaced.source = source;
    if (change > 0) {
        replaced_count++;
        __atomic_store_n(&reactor_clock_gettime, replaced_gettime, __ATOMIC_RELAXED);
        reactor_set_diagnostics(REACTOR_TIME_IS_REPLACED, true);
    } else if (change < 0 && --replaced_count == 0) {
        reactor_set_diagnostics(REACTOR_TIME_IS_REPLACED, false);
    }
}

int64_t reactor_clock_offset(void) { return replaced.clock ? replaced.clock->offset : 0; }

void *reactor_replaced_source(void) { return replaced.source; }

bool reactor_is_readable(int descriptor) {
    struct pollfd state = {descriptor, POLLIN, 0};
    return poll(&state, 1, 0) > 0;
}
