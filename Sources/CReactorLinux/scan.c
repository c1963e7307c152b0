#include "CReactorLinux.h"
#include "masks.h"

// Masks become offsets. They are written two at a time, wanted or not, and only the advance depends on how many
// there were: a branch for each would be mispredicted in every other block of ordinary text.

enum { written_at_once = 2 };

// The lowest set bit; of an empty mask, for which the builtin is undefined, a number that nobody will count.
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

// Writes at most `room` offsets, not one more, and returns how many.
ALWAYS_INLINE size_t write_some(uint64_t mask, uint32_t base, uint32_t *positions, size_t room) {
    size_t found = 0;
    for (; mask && found < room; mask &= mask - 1) positions[found++] = base + lowest(mask);
    return found;
}

ALWAYS_INLINE uint64_t tail_mask(mask_function *mask, const uint8_t *bytes, size_t count, uint8_t wanted) {
    uint8_t block[block_size] = {0};
    memcpy(block, bytes, count);
    return mask(block, wanted) & (((uint64_t)1 << count) - 1);
}

ALWAYS_INLINE size_t find(mask_function *mask, const uint8_t *bytes, size_t count, uint8_t wanted,
                          uint32_t *positions, size_t capacity) {
    size_t found = 0, at = 0;
    for (; at + block_size <= count; at += block_size) {
        uint64_t here = mask(bytes + at, wanted);
        size_t number = (size_t)__builtin_popcountll(here);
        if (found + number + written_at_once > capacity) break;
        write_offsets(here, number, (uint32_t)at, positions + found);
        found += number;
    }
    for (; at + block_size <= count && found < capacity; at += block_size)
        found += write_some(mask(bytes + at, wanted), (uint32_t)at, positions + found, capacity - found);
    if (at < count && found < capacity)
        found += write_some(tail_mask(mask, bytes + at, count - at, wanted), (uint32_t)at, positions + found,
                            capacity - found);
    return found;
}

// MARK: What the caller sees

size_t reactor_find_bytes_portable(const uint8_t *bytes, size_t count, uint8_t wanted,
                                   uint32_t *positions, size_t capacity) {
    return find(mask_portable, bytes, count, wanted, positions, capacity);
}

size_t reactor_find_bytes_baseline(const uint8_t *bytes, size_t count, uint8_t wanted,
                                   uint32_t *positions, size_t capacity) {
    return find(mask_baseline, bytes, count, wanted, positions, capacity);
}

#if defined(__x86_64__)

WIDE static size_t find_wide(const uint8_t *bytes, size_t count, uint8_t wanted,
                             uint32_t *positions, size_t capacity) {
    return find(mask_wide, bytes, count, wanted, positions, capacity);
}

size_t reactor_find_bytes(const uint8_t *bytes, size_t count, uint8_t wanted,
                          uint32_t *positions, size_t capacity) {
    if (has_wide()) return find_wide(bytes, count, wanted, positions, capacity);
    return reactor_find_bytes_baseline(bytes, count, wanted, positions, capacity);
}

#else

size_t reactor_find_bytes(const uint8_t *bytes, size_t count, uint8_t wanted,
                          uint32_t *positions, size_t capacity) {
    return reactor_find_bytes_baseline(bytes, count, wanted, positions, capacity);
}

#endif
