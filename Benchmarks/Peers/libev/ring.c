// libev's watchers.

#include "workloads.h"

#include <ev.h>

static ev_io *watchers;

static void ready(struct ev_loop *loop, ev_io *watcher, int events) {
    (void)loop, (void)events;
    ring_ready((size_t)(watcher - watchers));
}

static void prepare(size_t count) { watchers = malloc(count * sizeof *watchers); }

static void watch(size_t index, int descriptor) {
    ev_io_init(&watchers[index], ready, descriptor, EV_READ);
    ev_io_start(EV_DEFAULT, &watchers[index]);
}

static void run(void) { ev_run(EV_DEFAULT, 0); }

int main(int argc, char **argv) {
    struct ring_peer peer = {prepare, watch, run};
    return run_ring(&peer, argc, argv);
}
