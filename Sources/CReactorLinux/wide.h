#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define WIDE __attribute__((target("avx2,bmi,popcnt")))

// Whether functions marked WIDE may be called. Threads that ask the processor at once find the same.
static inline bool has_wide(void) {
    enum { unknown, no, yes };
    static _Atomic int known = unknown;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == unknown) {
        __builtin_cpu_init();
        bool vectors = __builtin_cpu_supports("avx2");
        bool bits = __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt");
        answer = vectors && bits ? yes : no;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == yes;
}

#endif
