// The baseline: epoll, level-triggered.

#include "workloads.h"

#include <sys/epoll.h>

static int poller;

static void prepare(size_t count) {
    (void)count;
    poller = epoll_create1(EPOLL_CLOEXEC);
}

static void watch(size_t index, int descriptor) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = index};
    epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event);
}

static void run(void) {
    struct epoll_event events[256];
    for (;;) {
        int count = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < count; i++) ring_ready(events[i].data.u64);
    }
}

int main(int argc, char **argv) {
    struct ring_peer peer = {prepare, watch, run};
    return run_ring(&peer, argc, argv);
}
