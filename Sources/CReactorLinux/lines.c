#include "CReactorLinux.h"
#include "masks.h"

// Lines are found as scan.c finds bytes; and as the blocks are at hand, so is whether they have more than ASCII.

static inline bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

struct part {
    size_t first, last;
};

// The bytes that are UTF-8, up to the first fault. A character other than ASCII is left out if it begins or ends the
// bytes, which may have cut it off.
static struct part find_text(const uint8_t *bytes, size_t count) {
    size_t first = 0, last = count;
    while (first < count && first < 3 && is_continuation(bytes[first])) first++;
    while (last > first && count - last < 3 && is_continuation(bytes[last - 1])) last--;
    if (last > first && bytes[last - 1] >= 0xc0) last--;
    bool is_ascii;
    return (struct part){first, first + reactor_utf8_prefix(bytes + first, last - first, &is_ascii)};
}

struct search {
    struct part text;
    // Of the line under way: where it began, and whether a block before had a byte of it that is not ASCII.
    size_t start;
    bool has_high;
    size_t found, capacity;
    uint32_t *ends;
};

// Takes the masks of a block: the ends of lines, and the bytes that are not ASCII.
ALWAYS_INLINE void take_block(struct search *search, uint64_t ends, uint64_t high, size_t base) {
    for (; ends && search->found < search->capacity; ends &= ends - 1) {
        uint64_t line = ends ^ (ends - 1);
        size_t end = base + (size_t)__builtin_ctzll(ends);
        bool is_ascii = !search->has_high && !(high & line);
        bool is_text = is_ascii || (search->start >= search->text.first && end <= search->text.last);
        search->ends[search->found++] =
            (uint32_t)end | (is_ascii ? REACTOR_LINE_IS_ASCII : 0) | (is_text ? REACTOR_LINE_IS_TEXT : 0);
        high &= ~line;
        search->has_high = false;
        search->start = end + 1;
    }
    search->has_high |= high != 0;
}

ALWAYS_INLINE size_t find(mask_function *mask, high_function *high, const uint8_t *bytes, size_t count,
                          uint8_t wanted, uint32_t *ends, size_t capacity) {
    struct search search = {.text = find_text(bytes, count), .capacity = capacity, .ends = ends};
    size_t at = 0;
    for (; at + block_size <= count; at += block_size) {
        if (search.found == capacity) return capacity;
        take_block(&search, mask(bytes + at, wanted), high(bytes + at), at);
    }
    uint8_t block[block_size] = {0};
    memcpy(block, bytes + at, count - at);
    uint64_t inside = ((uint64_t)1 << (count - at)) - 1;
    take_block(&search, mask(block, wanted) & inside, high(block), at);
    return search.found;
}

size_t reactor_find_lines_portable(const uint8_t *bytes, size_t count, uint8_t wanted,
                                   uint32_t *ends, size_t capacity) {
    return find(mask_portable, high_portable, bytes, count, wanted, ends, capacity);
}

size_t reactor_find_lines_baseline(const uint8_t *bytes, size_t count, uint8_t wanted,
                                   uint32_t *ends, size_t capacity) {
    return find(mask_baseline, high_baseline, bytes, count, wanted, ends, capacity);
}

#if defined(__x86_64__)

WIDE static size_t find_wide(const uint8_t *bytes, size_t count, uint8_t wanted,
                             uint32_t *ends, size_t capacity) {
    return find(mask_wide, high_wide, bytes, count, wanted, ends, capacity);
}

size_t reactor_find_lines(const uint8_t *bytes, size_t count, uint8_t wanted,
                          uint32_t *ends, size_t capacity) {
    if (has_wide()) return find_wide(bytes, count, wanted, ends, capacity);
    return reactor_find_lines_baseline(bytes, count, wanted, ends, capacity);
}

#else

size_t reactor_find_lines(const uint8_t *bytes, size_t count, uint8_t wanted,
                          uint32_t *ends, size_t capacity) {
    return reactor_find_lines_baseline(bytes, count, wanted, ends, capacity);
}

#endif
