// A list with a mutex, and an event that the posting thread activates if the list was empty.

#include "workloads.h"

#include <event2/event.h>
#include <event2/thread.h>

struct loop {
    struct event_base *base;
    struct event *wake;
    struct posts posts;
};

static void woken(evutil_socket_t descriptor, short what, void *loop) {
    (void)descriptor, (void)what;
    posts_run(&((struct loop *)loop)->posts);
}

static void *make(void) {
    evthread_use_pthreads();
    struct loop *loop = calloc(1, sizeof *loop);
    posts_prepare(&loop->posts);
    loop->base = event_base_new();
    loop->wake = event_new(loop->base, -1, EV_PERSIST, woken, loop);
    return loop;
}

static void run(void *loop) { event_base_loop(((struct loop *)loop)->base, EVLOOP_NO_EXIT_ON_EMPTY); }

static void post(void *context, posted_function function, void *argument) {
    struct loop *loop = context;
    if (posts_add(&loop->posts, function, argument)) event_active(loop->wake, 0, 0);
}

int main(int argc, char **argv) {
    struct cross_peer peer = {make, run, post};
    return run_cross(&peer, argc, argv);
}
