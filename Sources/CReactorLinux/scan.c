#include "CReactorLinux.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// The vectors are clang's extension, which compiles to SSE2, NEON or plain words; and to AVX2 in functions
// marked WIDE.

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)

#define WIDE __attribute__((target("avx2,bmi,popcnt")))

// Whether functions marked WIDE may be called. Threads that ask at the same time find the same answer.
static bool has_wide(void) {
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

// MARK: Finding bytes
//
// A block of 64 bytes becomes a mask of 64 bits, the first byte's lowest, and a mask becomes offsets. Offsets
// are written two at a time, needed or not, and only the advance depends on their number: a branch for each
// would be mispredicted in every other block of ordinary text.

enum { block_size = 64, written_at_once = 2 };

typedef uint8_t block_bytes __attribute__((ext_vector_type(block_size)));
typedef bool block_bits __attribute__((ext_vector_type(block_size)));

ALWAYS_INLINE uint64_t mask_of(const uint8_t *block, uint8_t wanted) {
    block_bytes bytes;
    memcpy(&bytes, block, sizeof bytes);
    block_bits equal = __builtin_convertvector(bytes == (block_bytes)wanted, block_bits);
    uint64_t mask;
    memcpy(&mask, &equal, sizeof mask);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    mask = __builtin_bitreverse64(mask);
#endif
    return mask;
}

// The lowest set bit. For an empty mask, where the builtin is undefined, any number: it is not counted.
ALWAYS_INLINE uint32_t lowest(uint64_t mask) { return mask ? (uint32_t)__builtin_ctzll(mask) : 64; }

// Writes up to `written_at_once` offsets more than `found`, the number of bits in `mask`.
ALWAYS_INLINE void write_offsets(uint64_t mask, size_t found, uint32_t base, uint32_t *positions) {
    for (size_t next = 0; next == 0 || next < found; next += written_at_once) {
        for (size_t each = 0; each < written_at_once; each++) {
            positions[next + each] = base + lowest(mask);
            mask &= mask - 1;
        }
    }
}

// Writes at most `room` offsets, and returns how many.
ALWAYS_INLINE size_t write_some(uint64_t mask, uint32_t base, uint32_t *positions, size_t room) {
    size_t found = 0;
    for (; mask && found < room; mask &= mask - 1) positions[found++] = base + lowest(mask);
    return found;
}

ALWAYS_INLINE uint64_t tail_mask(const uint8_t *bytes, size_t count, uint8_t wanted) {
    uint8_t block[block_size] = {0};
    memcpy(block, bytes, count);
    return mask_of(block, wanted) & (((uint64_t)1 << count) - 1);
}

ALWAYS_INLINE size_t find(const uint8_t *bytes, size_t count, uint8_t wanted, uint32_t *positions,
                          size_t capacity) {
    size_t found = 0, at = 0;
    for (; at + block_size <= count; at += block_size) {
        uint64_t mask = mask_of(bytes + at, wanted);
        size_t number = (size_t)__builtin_popcountll(mask);
        if (found + number + written_at_once > capacity) break;
        write_offsets(mask, number, (uint32_t)at, positions + found);
        found += number;
    }
    for (; at + block_size <= count && found < capacity; at += block_size)
        found += write_some(mask_of(bytes + at, wanted), (uint32_t)at, positions + found, capacity - found);
    if (at < count && found < capacity)
        found += write_some(tail_mask(bytes + at, count - at, wanted), (uint32_t)at, positions + found,
                            capacity - found);
    return found;
}

size_t reactor_find_bytes_baseline(const void *bytes, size_t count, uint8_t wanted,
                                   uint32_t *positions, size_t capacity) {
    return find(bytes, count, wanted, positions, capacity);
}

#if defined(__x86_64__)
WIDE static size_t find_wide(const uint8_t *bytes, size_t count, uint8_t wanted, uint32_t *positions,
                             size_t capacity) {
    return find(bytes, count, wanted, positions, capacity);
}
#endif

size_t reactor_find_bytes(const void *bytes, size_t count, uint8_t wanted, uint32_t *positions,
                          size_t capacity) {
#if defined(__x86_64__)
    if (has_wide()) return find_wide(bytes, count, wanted, positions, capacity);
#endif
    return reactor_find_bytes_baseline(bytes, count, wanted, positions, capacity);
}

// MARK: Checking UTF-8
//
// Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" (2021): the high bits of a
// byte, its low bits, and the high bits of the next byte each select the possible errors; an error is one
// that all three select. Two continuation bytes in a row are correct if a lead byte two or three places
// before requires them.

#if defined(__x86_64__)

enum { width = 32 };
typedef uint8_t vector __attribute__((ext_vector_type(width)));

WIDE ALWAYS_INLINE vector look_up(vector table, vector index) {
    return (vector)_mm256_shuffle_epi8((__m256i)table, (__m256i)index);
}

#elif defined(__aarch64__)

#define WIDE
enum { width = 16 };
typedef uint8_t vector __attribute__((ext_vector_type(width)));

ALWAYS_INLINE vector look_up(vector table, vector index) {
    return (vector)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)index);
}

#endif

#if defined(__x86_64__) || defined(__aarch64__)

enum {
    too_short = 1, too_long = 2, overlong_3 = 4, too_large = 8, surrogate = 16, overlong_2 = 32,
    too_large_1000 = 64, overlong_4 = 64, two_continuations = 128,
    any_low = too_short | too_long | two_continuations,
    large_low = any_low | too_large | too_large_1000,
    continuation = too_long | overlong_2 | two_continuations,
    look_back = 3, group = 8
};

// The errors that the high bits of a byte, its low bits, and the high bits of the next byte select.
static const uint8_t by_high[16] = {
    too_long, too_long, too_long, too_long, too_long, too_long, too_long, too_long, two_continuations,
    two_continuations, two_continuations, two_continuations, too_short | overlong_2, too_short,
    too_short | overlong_3 | surrogate, too_short | too_large | too_large_1000 | overlong_4,
};
static const uint8_t by_low[16] = {
    any_low | overlong_3 | overlong_2 | overlong_4, any_low | overlong_2, any_low, any_low,
    any_low | too_large, large_low, large_low, large_low, large_low, large_low, large_low, large_low,
    large_low, large_low | surrogate, large_low, large_low,
};
static const uint8_t by_next[16] = {
    too_short, too_short, too_short, too_short, too_short, too_short, too_short, too_short,
    continuation | overlong_3 | too_large_1000 | overlong_4, continuation | overlong_3 | too_large,
    continuation | surrogate | too_large, continuation | surrogate | too_large,
    too_short, too_short, too_short, too_short,
};

WIDE ALWAYS_INLINE vector load(const uint8_t *bytes) {
    vector loaded;
    memcpy(&loaded, bytes, sizeof loaded);
    return loaded;
}

WIDE ALWAYS_INLINE vector table(const uint8_t entries[16]) {
    vector table;
    for (size_t each = 0; each < width; each += 16) memcpy((uint8_t *)&table + each, entries, 16);
    return table;
}

// The errors among `width` bytes. Three more precede them.
WIDE ALWAYS_INLINE vector faults(const uint8_t *bytes) {
    vector here = load(bytes), before = load(bytes - 1);
    vector found = look_up(table(by_high), before >> 4) & look_up(table(by_low), before & 0x0f) &
                   look_up(table(by_next), here >> 4);
    vector third = __builtin_elementwise_sub_sat(load(bytes - 2), (vector)(0xe0 - 0x80));
    vector fourth = __builtin_elementwise_sub_sat(load(bytes - 3), (vector)(0xf0 - 0x80));
    return ((third | fourth) & 0x80) ^ found;
}

// Both need at least `width` bytes. The last vector overlaps the one before.

WIDE static bool is_ascii(const uint8_t *bytes, size_t count) {
    const uint8_t *last = bytes + count - width;
    for (; (size_t)(last - bytes) >= group * width; bytes += group * width) {
        vector all = load(bytes);
        for (size_t each = 1; each < group; each++) all |= load(bytes + each * width);
        if (__builtin_reduce_or(all) >= 0x80) return false;
    }
    vector all = load(last);
    for (; bytes < last; bytes += width) all |= load(bytes);
    return __builtin_reduce_or(all) < 0x80;
}

WIDE static bool is_valid(const uint8_t *bytes, size_t count) {
    const uint8_t *end = bytes + count, *last = end - width;
    if (end[-1] >= 0xc0 || end[-2] >= 0xe0 || end[-3] >= 0xf0) return false; // cut off
    uint8_t start[look_back + width] = {0};
    memcpy(start + look_back, bytes, width);
    vector found = faults(start + look_back) | faults(last);
    for (bytes += width; bytes < last; bytes += width) found |= faults(bytes);
    return __builtin_reduce_or(found) == 0;
}

enum reactor_text reactor_check_text(const void *bytes, size_t count) {
#if defined(__x86_64__)
    if (!has_wide()) return reactor_text_unknown;
#endif
    if (count < width + look_back) return reactor_text_unknown;
    if (is_ascii(bytes, count)) return reactor_text_ascii;
    return is_valid(bytes, count) ? reactor_text_utf8 : reactor_text_unknown;
}

#else

enum reactor_text reactor_check_text(const void *bytes, size_t count) { return reactor_text_unknown; }

#endif
