// libevent's persistent read events.

#include "workloads.h"

#include <event2/event.h>

static struct event_base *base;

static void ready(evutil_socket_t descriptor, short what, void *index) {
    (void)descriptor, (void)what;
    ring_ready((size_t)index);
}

static void prepare(size_t count) {
    (void)count;
    base = event_base_new();
}

static void watch(size_t index, int descriptor) {
    event_add(event_new(base, descriptor, EV_READ | EV_PERSIST, ready, (void *)index), NULL);
}

static void run(void) { event_base_dispatch(base); }

int main(int argc, char **argv) {
    struct ring_peer peer = {prepare, watch, run};
    return run_ring(&peer, argc, argv);
}
