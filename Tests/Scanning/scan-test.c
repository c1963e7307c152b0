// Compares the vector code of scan.c with byte loops: all lengths and alignments, all lead and continuation bytes at all
// positions, and random text. scripts/check-scanning runs it on this architecture and on aarch64.

#include "CReactorLinux.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252;

static uint32_t random_below(uint32_t bound) { // xorshift64: the same numbers in every run
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % bound;
}

static void fail(const char *what, const uint8_t *bytes, size_t count) {
    fprintf(stderr, "%s, %zu bytes:", what, count);
    for (size_t each = 0; each < count; each++) fprintf(stderr, " %02x", bytes[each]);
    fprintf(stderr, "\n");
    exit(1);
}

// The table of well-formed byte sequences in the Unicode standard (chapter 3, table 3-7).
static size_t character_length(const uint8_t *bytes, size_t count) {
    uint8_t lead = bytes[0];
    if (lead < 0x80) return 1;
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length > count) return 0;
    uint8_t first = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t last = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (bytes[1] < first || bytes[1] > last) return 0;
    for (size_t each = 2; each < length; each++)
        if ((bytes[each] & 0xc0) != 0x80) return 0;
    return length;
}

static enum reactor_text expected_text(const uint8_t *bytes, size_t count) {
    enum reactor_text text = reactor_text_ascii;
    for (size_t at = 0; at < count;) {
        size_t length = character_length(bytes + at, count - at);
        if (length == 0) return reactor_text_unknown;
        if (length > 1) text = reactor_text_utf8;
        at += length;
    }
    return text;
}

enum { always_known = 64 }; // bytes, if the processor has the vector instructions

static void check_text(const uint8_t *bytes, size_t count) {
    static const uint8_t plain[always_known] = {0};
    bool has_vectors = reactor_check_text(plain, sizeof plain) != reactor_text_unknown;
    enum reactor_text found = reactor_check_text(bytes, count), expected = expected_text(bytes, count);
    bool may_be_unknown = !has_vectors || count < always_known;
    if (found != expected && !(may_be_unknown && found == reactor_text_unknown))
        fail("wrong classification of text", bytes, count);
}

// Each call allocates a block of its own, so that the address sanitizer detects reads beyond it.
static void check_find(size_t count, size_t alignment, uint32_t rarity) {
    uint8_t *block = malloc(alignment + count + 1), *bytes = block + alignment;
    uint32_t *found = malloc((count + 1) * sizeof *found);
    for (size_t each = 0; each < count; each++)
        bytes[each] = random_below(rarity) ? (uint8_t)random_below(256) : '\n';
    for (size_t capacity = 0; capacity <= count; capacity += 1 + count / 5) {
        for (int is_best = 0; is_best < 2; is_best++) {
            size_t number = (is_best ? reactor_find_bytes : reactor_find_bytes_baseline)(
                bytes, count, '\n', found, capacity);
            size_t next = 0;
            for (size_t each = 0; each < count && next < capacity; each++)
                if (bytes[each] == '\n' && found[next++] != each) fail("wrong offset", bytes, count);
            if (next != number) fail("wrong number of offsets", bytes, count);
        }
    }
    free(found);
    free(block);
}

// Sequences of two to four bytes in ASCII, at every position of several vectors.
static void check_sequences(void) {
    static const uint8_t ends[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    uint8_t bytes[always_known + 40];
    for (size_t place = 0; place + 4 <= sizeof bytes; place += 1 + place % 3) {
        for (uint32_t lead = 0x80; lead <= 0xff; lead++)
            for (uint32_t each = 0; each < 1000; each += 1 + place % 2 * 6) {
                memset(bytes, 'x', sizeof bytes);
                bytes[place] = (uint8_t)lead;
                bytes[place + 1] = ends[each % 10];
                bytes[place + 2] = ends[each / 10 % 10];
                bytes[place + 3] = ends[each / 100];
                check_text(bytes, sizeof bytes);
            }
    }
}

static void check_random_text(void) {
    static const char *const units[] = {"a", "plain words ", "\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x8e\x8f"};
    uint8_t bytes[600];
    for (int round = 0; round < 50000; round++) {
        size_t count = 0, limit = random_below(sizeof bytes - 16);
        while (count < limit) {
            const char *unit = units[random_below(round % 3 ? 5 : 2)];
            memcpy(bytes + count, unit, strlen(unit));
            count += strlen(unit);
        }
        if (round % 2 && count > 0) bytes[random_below((uint32_t)count)] = (uint8_t)random_below(256);
        check_text(bytes, count);
        check_text(bytes, limit < count ? limit : count); // may end within a character
    }
}

int main(void) {
    for (size_t count = 0; count < 300; count++)
        for (size_t alignment = 0; alignment < 32; alignment++)
            check_find(count, alignment, (uint32_t[]){1, 2, 9, 80}[random_below(4)]);
    check_sequences();
    check_random_text();
    return 0;
}
