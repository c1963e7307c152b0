#pragma once

#include "wide.h"

#include <stdint.h>
#include <string.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

// Blocks of 64 bytes become 64-bit masks, one bit a byte, the first byte's lowest.

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { block_size = 64 };

// The bytes of a block that equal `wanted`.
typedef uint64_t mask_function(const uint8_t *block, uint8_t wanted);
// The bytes of a block that are not ASCII.
typedef uint64_t high_function(const uint8_t *block);

// Bit 7 of each byte of `equal` is set where the byte of `word` is zero; exact, as no carry crosses a byte.
ALWAYS_INLINE uint64_t zero_bytes(uint64_t word) {
    const uint64_t low = 0x7f7f7f7f7f7f7f7f;
    return ~(((word & low) + low) | word | low);
}

ALWAYS_INLINE uint64_t load_word(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

// Bit 7 of each of eight bytes, side by side.
ALWAYS_INLINE uint64_t gather_word(uint64_t word) {
    return ((word & 0x8080808080808080) >> 7) * 0x0102040810204080 >> 56;
}

ALWAYS_INLINE uint64_t mask_portable(const uint8_t *block, uint8_t wanted) {
    // Unsigned: the product of a byte from 0x80 on does not fit in 63 bits.
    const uint64_t sought = UINT64_C(0x0101010101010101) * wanted;
    uint64_t mask = 0;
    for (int each = 0; each < 8; each++)
        mask |= gather_word(zero_bytes(load_word(block + 8 * each) ^ sought)) << 8 * each;
    return mask;
}

ALWAYS_INLINE uint64_t high_portable(const uint8_t *block) {
    uint64_t mask = 0;
    for (int each = 0; each < 8; each++) mask |= gather_word(load_word(block + 8 * each)) << 8 * each;
    return mask;
}

#if defined(__x86_64__)

ALWAYS_INLINE __m128i load_narrow(const uint8_t *bytes) { return _mm_loadu_si128((const __m128i *)bytes); }

ALWAYS_INLINE uint64_t gather_narrow(__m128i bytes) { return (uint32_t)_mm_movemask_epi8(bytes); }

ALWAYS_INLINE uint64_t mask_baseline(const uint8_t *block, uint8_t wanted) {
    const __m128i sought = _mm_set1_epi8((char)wanted);
    uint64_t mask = 0;
    for (int each = 0; each < 4; each++)
        mask |= gather_narrow(_mm_cmpeq_epi8(load_narrow(block + 16 * each), sought)) << 16 * each;
    return mask;
}

ALWAYS_INLINE uint64_t high_baseline(const uint8_t *block) {
    uint64_t mask = 0;
    for (int each = 0; each < 4; each++) mask |= gather_narrow(load_narrow(block + 16 * each)) << 16 * each;
    return mask;
}

WIDE static inline __m256i load_wide(const uint8_t *bytes) { return _mm256_loadu_si256((const __m256i *)bytes); }

WIDE static inline uint64_t gather_wide(__m256i low, __m256i high) {
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

WIDE static inline uint64_t mask_wide(const uint8_t *block, uint8_t wanted) {
    const __m256i sought = _mm256_set1_epi8((char)wanted);
    return gather_wide(_mm256_cmpeq_epi8(load_wide(block), sought),
                       _mm256_cmpeq_epi8(load_wide(block + 32), sought));
}

WIDE static inline uint64_t high_wide(const uint8_t *block) {
    return gather_wide(load_wide(block), load_wide(block + 32));
}

#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

// NEON has no move-mask: each byte, all ones or none, keeps the bit of its place in a group of eight; pairwise
// sums gather them.
ALWAYS_INLINE uint64_t gather_neon(uint8x16_t first, uint8x16_t second, uint8x16_t third, uint8x16_t fourth) {
    static const uint8_t places[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t place = vld1q_u8(places);
    uint8x16_t low = vpaddq_u8(vandq_u8(first, place), vandq_u8(second, place));
    uint8x16_t high = vpaddq_u8(vandq_u8(third, place), vandq_u8(fourth, place));
    uint8x16_t sums = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
}

ALWAYS_INLINE uint64_t mask_baseline(const uint8_t *block, uint8_t wanted) {
    const uint8x16_t sought = vdupq_n_u8(wanted);
    return gather_neon(vceqq_u8(vld1q_u8(block), sought), vceqq_u8(vld1q_u8(block + 16), sought),
                       vceqq_u8(vld1q_u8(block + 32), sought), vceqq_u8(vld1q_u8(block + 48), sought));
}

ALWAYS_INLINE uint64_t high_baseline(const uint8_t *block) {
    const uint8x16_t least = vdupq_n_u8(0x80);
    return gather_neon(vcgeq_u8(vld1q_u8(block), least), vcgeq_u8(vld1q_u8(block + 16), least),
                       vcgeq_u8(vld1q_u8(block + 32), least), vcgeq_u8(vld1q_u8(block + 48), least));
}

#else
#define mask_baseline mask_portable
#define high_baseline high_portable
#endif
