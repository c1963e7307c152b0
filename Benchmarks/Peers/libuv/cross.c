// A list with a mutex, and an async handle.

#include "workloads.h"

#include <uv.h>

struct loop {
    uv_loop_t loop;
    uv_async_t wake;
    struct posts posts;
};

static void woken(uv_async_t *wake) { posts_run(&((struct loop *)wake->data)->posts); }

static void *make(void) {
    struct loop *loop = calloc(1, sizeof *loop);
    posts_prepare(&loop->posts);
    uv_loop_init(&loop->loop);
    uv_async_init(&loop->loop, &loop->wake, woken);
    loop->wake.data = loop;
    return loop;
}

static void run(void *loop) { uv_run(&((struct loop *)loop)->loop, UV_RUN_DEFAULT); }

static void post(void *context, posted_function function, void *argument) {
    struct loop *loop = context;
    if (posts_add(&loop->posts, function, argument)) uv_async_send(&loop->wake);
}

int main(int argc, char **argv) {
    struct cross_peer peer = {make, run, post};
    return run_cross(&peer, argc, argv);
}
