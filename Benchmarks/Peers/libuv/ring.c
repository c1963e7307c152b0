// libuv's poll handles.

#include "workloads.h"

#include <uv.h>

static uv_poll_t *handles;

static void ready(uv_poll_t *handle, int status, int events) {
    (void)status, (void)events;
    ring_ready((size_t)(handle - handles));
}

static void prepare(size_t count) { handles = malloc(count * sizeof *handles); }

static void watch(size_t index, int descriptor) {
    uv_poll_init(uv_default_loop(), &handles[index], descriptor);
    uv_poll_start(&handles[index], UV_READABLE, ready);
}

static void run(void) { uv_run(uv_default_loop(), UV_RUN_DEFAULT); }

int main(int argc, char **argv) {
    struct ring_peer peer = {prepare, watch, run};
    return run_ring(&peer, argc, argv);
}
