#include "CReactorLinux.h"
#include "wide.h"

#include <string.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

// Blocks of 64 bytes become 64-bit masks, one bit a byte, and masks become offsets. The offsets are written
// two at a time, wanted or not, and only the advance depends on how many there were: a branch for each would
// be mispredicted in every other block of ordinary text.

enum { block_size = 64, written_at_once = 2 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef uint64_t mask_function(const uint8_t *block, uint8_t wanted);

// MARK: From bytes to masks

// Bit 7 of each byte of `equal` is set where the byte of `word` is zero; exact, as no carry crosses a byte.
ALWAYS_INLINE uint64_t zero_bytes(uint64_t word) {
    const uint64_t low = 0x7f7f7f7f7f7f7f7f;
    return ~(((word & low) + low) | word | low);
}

ALWAYS_INLINE uint64_t mask_portable(const uint8_t *block, uint8_t wanted) {
    uint64_t mask = 0;
    for (int each = 0; each < 8; each++) {
        uint64_t word;
        memcpy(&word, block + 8 * each, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        uint64_t equal = zero_bytes(word ^ 0x0101010101010101 * wanted) >> 7;
        mask |= (equal * 0x0102040810204080 >> 56) << 8 * each;
    }
    return mask;
}

#if defined(__x86_64__)

ALWAYS_INLINE uint64_t mask_baseline(const uint8_t *block, uint8_t wanted) {
    const __m128i sought = _mm_set1_epi8((char)wanted);
    uint64_t mask = 0;
    for (int each = 0; each < 4; each++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 16 * each));
        mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, sought)) << 16 * each;
    }
    return mask;
}

WIDE static inline uint64_t mask_wide(const uint8_t *block, uint8_t wanted) {
    const __m256i sought = _mm256_set1_epi8((char)wanted);
    __m256i low = _mm256_loadu_si256((const __m256i *)block);
    __m256i high = _mm256_loadu_si256((const __m256i *)(block + 32));
    uint32_t low_mask = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(low, sought));
    uint32_t high_mask = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(high, sought));
    return low_mask | (uint64_t)high_mask << 32;
}

#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

// NEON has no move-mask: each byte keeps the bit of its place in a group of eight; pairwise sums gather them.
ALWAYS_INLINE uint64_t mask_baseline(const uint8_t *block, uint8_t wanted) {
    static const uint8_t places[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t sought = vdupq_n_u8(wanted), place = vld1q_u8(places);
    uint8x16_t first = vandq_u8(vceqq_u8(vld1q_u8(block), sought), place);
    uint8x16_t second = vandq_u8(vceqq_u8(vld1q_u8(block + 16), sought), place);
    uint8x16_t third = vandq_u8(vceqq_u8(vld1q_u8(block + 32), sought), place);
    uint8x16_t fourth = vandq_u8(vceqq_u8(vld1q_u8(block + 48), sought), place);
    uint8x16_t sums = vpaddq_u8(vpaddq_u8(first, second), vpaddq_u8(third, fourth));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
}

#else
#define mask_baseline mask_portable
#endif

// MARK: From masks to offsets

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
