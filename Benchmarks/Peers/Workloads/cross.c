#include "clocks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct cross_peer *peer;
static void *here, *there;
static size_t goal, done;
static int64_t begin, begin_processor;
static _Atomic int64_t posted;

static void *body(void *loop) {
    peer->run(loop);
    return NULL;
}

static void *start_loop(void) {
    pthread_t thread;
    void *loop = peer->make();
    if (pthread_create(&thread, NULL, body, loop)) abort();
    return loop;
}

static void count_post(void *context) {
    (void)context;
    if (++done < goal) return;
    double wall = (double)(monotonic_ns() - begin), processor = (double)(processor_ns() - begin_processor);
    while (!atomic_load(&posted)) usleep(100);
    double n = (double)goal;
    printf("%.1f %.1f %.1f\n", processor / n, wall / n, (double)(atomic_load(&posted) - begin) / n);
    exit(0);
}

static void ping(void *context);
static void pong(void *context) { peer->post(here, ping, context); }
static void ping(void *context) {
    if (done++ < goal) return peer->post(there, pong, context);
    double wall = (double)(monotonic_ns() - begin), processor = (double)(processor_ns() - begin_processor);
    printf("%.1f %.1f\n", processor / (double)goal, wall / (double)goal);
    exit(0);
}

int run_cross(const struct cross_peer *cross_peer, int argc, char **argv) {
    if (argc < 3) return 2;
    peer = cross_peer;
    goal = strtoull(argv[2], NULL, 0);
    int is_ping = strcmp(argv[1], "ping") == 0;
    here = start_loop();
    there = is_ping ? start_loop() : NULL;
    usleep(100000); // the loops sleep by then
    begin = monotonic_ns();
    begin_processor = processor_ns();
    if (is_ping) peer->post(here, ping, NULL);
    else
        for (size_t i = 0; i < goal; i++) peer->post(here, count_post, NULL);
    atomic_store(&posted, monotonic_ns());
    for (;;) sleep(1000);
}
