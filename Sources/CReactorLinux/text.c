#include "CReactorLinux.h"
#include "wide.h"

#include <string.h>

// Text is mostly ASCII, read in words of eight bytes; what is not is checked character by character against
// the table of well-formed byte sequences in the Unicode standard (chapter 3, table 3-7).

static inline bool lies(uint8_t byte, uint8_t first, uint8_t last) { return byte >= first && byte <= last; }

// The length of the character at `bytes`, which is not ASCII; zero when it is ill-formed or cut off.
static inline size_t character_length(const uint8_t *bytes, size_t count) {
    uint8_t lead = bytes[0];
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (!lies(lead, 0xc2, 0xf4) || length > count) return 0;
    uint8_t first = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t last = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (!lies(bytes[1], first, last)) return 0;
    for (size_t each = 2; each < length; each++)
        if (!lies(bytes[each], 0x80, 0xbf)) return 0;
    return length;
}

enum { word_size = sizeof(uint64_t), group_size = 8 * word_size };

// The high bits of eight bytes, the first byte's lowest.
static inline uint64_t high_bits(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word & 0x8080808080808080;
}

static inline bool is_ascii_group(const uint8_t *bytes) {
    uint64_t bits = 0;
    for (size_t each = 0; each < group_size; each += word_size) bits |= high_bits(bytes + each);
    return bits == 0;
}

// Where the first byte that is not ASCII is at or after `at`; `count` when there is none. A line's end seldom
// falls on a word's: the last word is read again from its middle, as the count of a loop over its bytes would
// be mispredicted at every line.
static inline size_t skip_ascii(const uint8_t *bytes, size_t at, size_t count) {
    while (at + group_size <= count && is_ascii_group(bytes + at)) at += group_size;
    for (; at + word_size <= count; at += word_size) {
        uint64_t bits = high_bits(bytes + at);
        if (bits) return at + (size_t)__builtin_ctzll(bits) / 8;
    }
    if (count >= word_size && at < count) {
        uint64_t bits = high_bits(bytes + count - word_size) >> 8 * (word_size - (count - at));
        return bits ? at + (size_t)__builtin_ctzll(bits) / 8 : count;
    }
    while (at < count && bytes[at] < 0x80) at++;
    return at;
}

size_t reactor_utf8_prefix_portable(const uint8_t *bytes, size_t count, bool *is_ascii) {
    size_t at = skip_ascii(bytes, 0, count);
    *is_ascii = at == count;
    while (at < count) {
        size_t length = character_length(bytes + at, count - at);
        if (length == 0) break;
        at += length;
        if (at < count && bytes[at] < 0x80) at = skip_ascii(bytes, at, count);
    }
    return at;
}

#if defined(__x86_64__)

// MARK: Thirty-two bytes at a time
//
// Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" (2021): the four high bits of a
// byte, its four low ones, and the four high ones of the next byte each select the faults that they allow; a
// fault that all three allow is one. Two continuations in a row are none if a lead byte two or three places
// back asks for them.

enum {
    too_short = 1, too_long = 2, overlong_3 = 4, too_large = 8, surrogate = 16, overlong_2 = 32,
    too_large_1000 = 64, overlong_4 = 64, two_continuations = 128,
    any_low = too_short | too_long | two_continuations,
    large_low = any_low | too_large | too_large_1000,
    continuation = too_long | overlong_2 | two_continuations,
    block_size = 32, look_back = 3
};

#define TWICE(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)

WIDE static inline __m256i faults_by_high_bits(void) {
    return TWICE(too_long, too_long, too_long, too_long, too_long, too_long, too_long, too_long,
                 (char)two_continuations, (char)two_continuations, (char)two_continuations,
                 (char)two_continuations, too_short | overlong_2, too_short,
                 too_short | overlong_3 | surrogate, too_short | too_large | too_large_1000 | overlong_4);
}

WIDE static inline __m256i faults_by_low_bits(void) {
    return TWICE((char)(any_low | overlong_3 | overlong_2 | overlong_4), (char)(any_low | overlong_2),
                 (char)any_low, (char)any_low, (char)(any_low | too_large), (char)large_low, (char)large_low,
                 (char)large_low, (char)large_low, (char)large_low, (char)large_low, (char)large_low,
                 (char)large_low, (char)(large_low | surrogate), (char)large_low, (char)large_low);
}

WIDE static inline __m256i faults_by_next_byte(void) {
    return TWICE(too_short, too_short, too_short, too_short, too_short, too_short, too_short, too_short,
                 (char)(continuation | overlong_3 | too_large_1000 | overlong_4),
                 (char)(continuation | overlong_3 | too_large), (char)(continuation | surrogate | too_large),
                 (char)(continuation | surrogate | too_large), too_short, too_short, too_short, too_short);
}

WIDE static inline __m256i faults(__m256i bytes, __m256i before, __m256i before2, __m256i before3) {
    const __m256i nibble = _mm256_set1_epi8(0x0f);
    __m256i before_high = _mm256_and_si256(_mm256_srli_epi16(before, 4), nibble);
    __m256i bytes_high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
    __m256i high = _mm256_shuffle_epi8(faults_by_high_bits(), before_high);
    __m256i low = _mm256_shuffle_epi8(faults_by_low_bits(), _mm256_and_si256(before, nibble));
    __m256i next = _mm256_shuffle_epi8(faults_by_next_byte(), bytes_high);
    __m256i found = _mm256_and_si256(_mm256_and_si256(high, low), next);
    __m256i third = _mm256_subs_epu8(before2, _mm256_set1_epi8(0xe0 - 0x80));
    __m256i fourth = _mm256_subs_epu8(before3, _mm256_set1_epi8(0xf0 - 0x80));
    __m256i asked = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8((char)0x80));
    return _mm256_xor_si256(asked, found);
}

WIDE static inline __m256i load(const uint8_t *bytes) { return _mm256_loadu_si256((const __m256i *)bytes); }

WIDE static inline __m256i faults_at(const uint8_t *bytes) {
    return faults(load(bytes), load(bytes - 1), load(bytes - 2), load(bytes - 3));
}

WIDE static inline __m256i faults_at_start(const uint8_t *bytes) {
    __m256i first = load(bytes);
    __m256i shifted = _mm256_permute2x128_si256(first, first, 0x08); // zeros, then the low half
    return faults(first, _mm256_alignr_epi8(first, shifted, 15), _mm256_alignr_epi8(first, shifted, 14),
                  _mm256_alignr_epi8(first, shifted, 13));
}

// Both need a block and what a block looks back at. The last block overlaps the one before.

WIDE static inline bool is_ascii_wide(const uint8_t *bytes, size_t count) {
    const uint8_t *last = bytes + count - block_size;
    __m256i all = load(last);
    for (; bytes < last; bytes += block_size) all = _mm256_or_si256(all, load(bytes));
    return _mm256_movemask_epi8(all) == 0;
}

WIDE static bool is_valid_wide(const uint8_t *bytes, size_t count, bool *is_ascii) {
    *is_ascii = is_ascii_wide(bytes, count);
    if (*is_ascii) return true;
    const uint8_t *end = bytes + count, *last = end - block_size;
    if (end[-1] >= 0xc0 || end[-2] >= 0xe0 || end[-3] >= 0xf0) return false; // cut off
    __m256i fault = _mm256_or_si256(faults_at_start(bytes), faults_at(last));
    for (bytes += block_size; bytes < last; bytes += block_size)
        fault = _mm256_or_si256(fault, faults_at(bytes));
    return _mm256_testz_si256(fault, fault);
}

size_t reactor_utf8_prefix(const uint8_t *bytes, size_t count, bool *is_ascii) {
    if (count >= block_size + look_back && has_wide() && is_valid_wide(bytes, count, is_ascii)) return count;
    return reactor_utf8_prefix_portable(bytes, count, is_ascii);
}

#else

size_t reactor_utf8_prefix(const uint8_t *bytes, size_t count, bool *is_ascii) {
    return reactor_utf8_prefix_portable(bytes, count, is_ascii);
}

#endif
