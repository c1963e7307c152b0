// A list with a mutex, and an async watcher.

#include "workloads.h"

#include <ev.h>

struct loop {
    struct ev_loop *loop;
    ev_async wake;
    struct posts posts;
};

static void woken(struct ev_loop *loop, ev_async *wake, int events) {
    (void)loop, (void)events;
    posts_run(&((struct loop *)wake->data)->posts);
}

static void *make(void) {
    struct loop *loop = calloc(1, sizeof *loop);
    posts_prepare(&loop->posts);
    loop->loop = ev_loop_new(0);
    ev_async_init(&loop->wake, woken);
    loop->wake.data = loop;
    ev_async_start(loop->loop, &loop->wake);
    return loop;
}

static void run(void *loop) { ev_run(((struct loop *)loop)->loop, 0); }

static void post(void *context, posted_function function, void *argument) {
    struct loop *loop = context;
    if (posts_add(&loop->posts, function, argument)) ev_async_send(loop->loop, &loop->wake);
}

int main(int argc, char **argv) {
    struct cross_peer peer = {make, run, post};
    return run_cross(&peer, argc, argv);
}
