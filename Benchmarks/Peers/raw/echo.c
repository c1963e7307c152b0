// echo-raw [PORT]  The baseline: epoll, level-triggered. Prints the port that it listens on.

#include "workloads.h"

#include <sys/epoll.h>

static int poller;
static int listening;

static void set(int operation, int descriptor, uint32_t events, void *target) {
    struct epoll_event event = {.events = events, .data.ptr = target};
    epoll_ctl(poller, operation, descriptor, &event);
}

static void prepare(int listener) {
    poller = epoll_create1(EPOLL_CLOEXEC);
    listening = listener;
    set(EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
}

static void watch(struct echo_connection *connection) {
    set(EPOLL_CTL_ADD, connection->descriptor, EPOLLIN, connection);
}

static void read_again(struct echo_connection *connection) {
    set(EPOLL_CTL_MOD, connection->descriptor, EPOLLIN, connection);
}

static void write_instead(struct echo_connection *connection) {
    set(EPOLL_CTL_MOD, connection->descriptor, EPOLLOUT, connection);
}

// close(2) deregisters the descriptor, and one epoll_wait(2) returns at most one event of it.
static void forget(struct echo_connection *connection) { (void)connection; }

static void run(void) {
    struct epoll_event events[256];
    for (;;) {
        int count = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < count; i++) {
            struct echo_connection *connection = events[i].data.ptr;
            if (!connection) echo_accept(listening);
            else if (events[i].events & EPOLLOUT) echo_writable(connection);
            else echo_readable(connection);
        }
    }
}

int main(int argc, char **argv) {
    struct echo_peer peer = {prepare, watch, read_again, write_instead, forget, run};
    return run_echo(&peer, argc, argv);
}
