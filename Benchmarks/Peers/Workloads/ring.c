#define _GNU_SOURCE
#include "clocks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t count, active, measured, warm_up, events, writes;
static int (*pipes)[2];
static int64_t start, first, begin, begin_processor;

static void push(size_t index) {
    if (write(pipes[index][1], "x", 1) != 1) abort();
}

static void finish(void) {
    double wall = (double)(monotonic_ns() - begin), processor = (double)(processor_ns() - begin_processor);
    printf("%.1f %.1f %.1f\n", processor / (double)measured, wall / (double)measured,
           (double)(first - start) / (double)count);
    exit(0);
}

void ring_read(size_t index, size_t bytes) {
    if (events == 0) first = monotonic_ns();
    for (; bytes > 0; bytes--) {
        if (writes > 0) {
            writes--;
            push(index + 1 == count ? 0 : index + 1);
        }
        events++;
        if (events == warm_up) {
            begin = monotonic_ns();
            begin_processor = processor_ns();
        }
        if (events == warm_up + measured) finish();
    }
}

void ring_ready(size_t index) {
    char byte;
    if (read(pipes[index][0], &byte, 1) == 1) ring_read(index, 1);
}

int run_ring(const struct ring_peer *peer, int argc, char **argv) {
    if (argc < 4) return 2;
    count = strtoull(argv[1], NULL, 0);
    active = strtoull(argv[2], NULL, 0);
    measured = strtoull(argv[3], NULL, 0);
    warm_up = active < 100 ? 100 : active;
    writes = warm_up + measured;
    allow_descriptors(2 * count + 200);
    pipes = calloc(count, sizeof *pipes);
    for (size_t i = 0; i < count; i++)
        if (pipe2(pipes[i], O_NONBLOCK | O_CLOEXEC)) return 1;
    start = monotonic_ns();
    peer->prepare(count);
    for (size_t i = 0; i < count; i++) peer->watch(i, pipes[i][0]);
    for (size_t i = 0; i < active; i++) push(i * (count / active));
    peer->run();
    return 1;
}
