// The baseline: a 4-ary heap with an index of its timers, and epoll_pwait2(2) with nanoseconds.

#define _GNU_SOURCE
#include "workloads.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

struct node {
    int64_t due;
    size_t timer;
};

static struct node *heap;
static size_t *places, used;
static bool *repeats, stopped;

static void put(size_t place, struct node node) {
    heap[place] = node;
    places[node.timer] = place;
}

static void rise(size_t place, struct node node) {
    for (; place > 0 && heap[(place - 1) / 4].due > node.due; place = (place - 1) / 4) put(place, heap[(place - 1) / 4]);
    put(place, node);
}

static size_t earliest_child(size_t place) {
    size_t first = 4 * place + 1, end = first + 4 < used ? first + 4 : used, best = first;
    for (size_t child = first + 1; child < end; child++)
        if (heap[child].due < heap[best].due) best = child;
    return best;
}

static void sink(size_t place, struct node node) {
    for (size_t child; (child = earliest_child(place)) < used && heap[child].due < node.due; place = child)
        put(place, heap[child]);
    put(place, node);
}

static void prepare(size_t count) {
    heap = calloc(count, sizeof *heap);
    places = calloc(count, sizeof *places);
    repeats = calloc(count, sizeof *repeats);
}

static void add(size_t index, int64_t delay) { rise(used++, (struct node){monotonic_ns() + delay, index}); }

static void add_repeating(size_t index) {
    repeats[index] = true;
    add(index, timer_period);
}

static void cancel(size_t index) {
    size_t place = places[index];
    struct node last = heap[--used];
    if (place == used) return;
    if (place > 0 && heap[(place - 1) / 4].due > last.due) rise(place, last);
    else sink(place, last);
}

static void stop(void) { stopped = true; }

static void fire(int64_t now) {
    while (!stopped && used > 0 && heap[0].due <= now) {
        struct node node = heap[0];
        if (repeats[node.timer]) sink(0, (struct node){node.due + timer_period, node.timer});
        else cancel(node.timer);
        timer_fired(node.timer);
    }
}

static void run(void) {
    int poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    while (fire(monotonic_ns()), !stopped && used > 0) {
        int64_t now = monotonic_ns(), wait = heap[0].due > now ? heap[0].due - now : 0;
        struct timespec timeout = {wait / 1000000000, wait % 1000000000};
        syscall(SYS_epoll_pwait2, poller, &event, 1, &timeout, NULL, 0);
    }
}

int main(int argc, char **argv) {
    struct timer_peer peer = {prepare, add, add_repeating, cancel, run, stop, NULL};
    return run_timers(&peer, argc, argv);
}
