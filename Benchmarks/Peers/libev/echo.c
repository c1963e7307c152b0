// echo-libev [PORT]  libev's watchers, one per connection. Prints the port that it listens on.

#include "workloads.h"

#include <ev.h>

static ev_io listening;

static void acceptable(struct ev_loop *loop, ev_io *watcher, int events) {
    (void)loop, (void)events;
    echo_accept(watcher->fd);
}

static void ready(struct ev_loop *loop, ev_io *watcher, int events) {
    (void)loop;
    if (events & EV_WRITE) echo_writable(watcher->data);
    else echo_readable(watcher->data);
}

static void prepare(int listener) {
    ev_io_init(&listening, acceptable, listener, EV_READ);
    ev_io_start(EV_DEFAULT, &listening);
}

static void watch(struct echo_connection *connection) {
    ev_io *watcher = connection->watch = malloc(sizeof *watcher);
    ev_io_init(watcher, ready, connection->descriptor, EV_READ);
    watcher->data = connection;
    ev_io_start(EV_DEFAULT, watcher);
}

static void change(ev_io *watcher, int events) {
    ev_io_stop(EV_DEFAULT, watcher);
    ev_io_set(watcher, watcher->fd, events);
    ev_io_start(EV_DEFAULT, watcher);
}

static void read_again(struct echo_connection *connection) { change(connection->watch, EV_READ); }
static void write_instead(struct echo_connection *connection) { change(connection->watch, EV_WRITE); }

static void forget(struct echo_connection *connection) {
    ev_io_stop(EV_DEFAULT, connection->watch);
    free(connection->watch);
}

static void run(void) { ev_run(EV_DEFAULT, 0); }

int main(int argc, char **argv) {
    struct echo_peer peer = {prepare, watch, read_again, write_instead, forget, run};
    return run_echo(&peer, argc, argv);
}
