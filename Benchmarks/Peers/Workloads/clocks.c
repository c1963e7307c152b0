#include "clocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static int64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t monotonic_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
int64_t processor_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

// xorshift64*, with the same seed as in the Swift programs
int64_t random_below(uint64_t limit) {
    static uint64_t state = 88172645463325252u;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int64_t)(state * 2685821657736338717u % limit);
}

static int compare(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

void sort_numbers(int64_t *numbers, size_t count) { qsort(numbers, count, sizeof *numbers, compare); }

double microseconds_at(const int64_t *sorted, size_t count, double percent) {
    return count ? (double)sorted[(size_t)(percent / 100 * (double)(count - 1) + 0.5)] / 1e3 : 0;
}

void allow_descriptors(size_t number) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < number) limit.rlim_cur = number;
    if (limit.rlim_max < number) limit.rlim_max = number;
    if (setrlimit(RLIMIT_NOFILE, &limit)) perror("setrlimit");
}
