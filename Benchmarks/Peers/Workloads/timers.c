#include "clocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { soon = 10000000 }; // the latest due time of the timers that are due when the loop first runs

static const struct timer_peer *peer;
static char work;
static size_t count, fired, capacity;
static int64_t *due, *lateness, end, seconds;

void timer_fired(size_t index) {
    if (work == 'd') {
        if (++fired == count) peer->stop();
        return;
    }
    int64_t now = monotonic_ns();
    if (fired < capacity) lateness[fired++] = now - due[index];
    due[index] += timer_period;
    if (work == 'b' ? fired == count : now >= end) peer->stop();
}

static long resident_bytes(void) {
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &size, &pages) != 2) pages = 0;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void within(void (*body)(void)) {
    if (peer->within) peer->within(body);
    else body();
}

static void add_and_cancel(void) {
    long memory = resident_bytes();
    int64_t start = processor_ns();
    for (size_t i = 0; i < count; i++) peer->add(i, due[i]);
    int64_t added = processor_ns();
    memory = resident_bytes() - memory;
    int64_t cancelling = processor_ns();
    for (size_t i = 0; i < count; i++) peer->cancel(i);
    int64_t cancelled = processor_ns();
    double n = (double)count;
    printf("%.1f %.1f %.0f\n", (double)(added - start) / n, (double)(cancelled - cancelling) / n, (double)memory / n);
}

static void schedule(void) {
    if (work == 'c') {
        end = monotonic_ns() + seconds * 1000000000;
        for (size_t i = 0; i < count; i++) {
            due[i] = monotonic_ns() + timer_period;
            peer->add_repeating(i);
        }
        return;
    }
    int64_t base = monotonic_ns() + 1000000000;
    for (size_t i = 0; i < count; i++) due[i] = base + random_below(100000000);
    for (size_t i = 0; i < count; i++) peer->add(i, due[i] - monotonic_ns());
}

static void fire(void) {
    capacity = work == 'b' ? count : count * 100 * (size_t)(seconds + 1);
    lateness = malloc(capacity * sizeof *lateness);
    memset(lateness, 0, capacity * sizeof *lateness);
    peer->prepare(count);
    within(schedule);
    int64_t cost = processor_ns();
    peer->run();
    cost = processor_ns() - cost;
    sort_numbers(lateness, fired);
    size_t early = 0;
    while (early < fired && lateness[early] < 0) early++;
    printf("%.1f ", (double)cost / (double)fired);
    if (work == 'c') printf("%.1f ", (double)fired / ((double)count * (double)seconds));
    printf("%.1f %.1f ", microseconds_at(lateness, fired, 50), microseconds_at(lateness, fired, 99));
    if (work == 'b') printf("%.1f ", microseconds_at(lateness, fired, 100));
    printf("%zu\n", early);
}

static void add_all(void) {
    for (size_t i = 0; i < count; i++) peer->add(i, due[i]);
    usleep(soon / 1000 + 2000);
}

static void add_and_fire(void) {
    for (size_t i = 0; i < count; i++) due[i] = random_below(soon);
    peer->prepare(count);
    int64_t cost = processor_ns();
    within(add_all);
    peer->run();
    printf("%.1f\n", (double)(processor_ns() - cost) / (double)count);
}

int run_timers(const struct timer_peer *timer_peer, int argc, char **argv) {
    if (argc < 3) return 2;
    peer = timer_peer;
    work = argv[1][0];
    count = strtoull(argv[2], NULL, 0);
    due = calloc(count, sizeof *due);
    seconds = argc > 3 ? atoi(argv[3]) : 1;
    if (work == 'd') return add_and_fire(), 0;
    if (work != 'a') return fire(), 0;
    for (size_t i = 0; i < count; i++) due[i] = 10000000000 + random_below(50000000000);
    peer->prepare(count);
    within(add_and_cancel);
    return 0;
}
