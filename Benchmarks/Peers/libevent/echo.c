// echo-libevent [PORT]  libevent's persistent events, two per connection. Prints the port that it listens on.

#include "workloads.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>

struct watch {
    struct event reading, writing;
};

static struct event_base *base;

static void acceptable(evutil_socket_t listener, short what, void *context) {
    (void)what, (void)context;
    echo_accept(listener);
}

static void readable(evutil_socket_t descriptor, short what, void *connection) {
    (void)descriptor, (void)what;
    echo_readable(connection);
}

static void writable(evutil_socket_t descriptor, short what, void *connection) {
    (void)descriptor, (void)what;
    echo_writable(connection);
}

static void prepare(int listener) {
    base = event_base_new();
    event_add(event_new(base, listener, EV_READ | EV_PERSIST, acceptable, NULL), NULL);
}

static void watch(struct echo_connection *connection) {
    struct watch *watch = malloc(sizeof *watch);
    event_assign(&watch->reading, base, connection->descriptor, EV_READ | EV_PERSIST, readable, connection);
    event_assign(&watch->writing, base, connection->descriptor, EV_WRITE | EV_PERSIST, writable, connection);
    event_add(&watch->reading, NULL);
    connection->watch = watch;
}

static void read_again(struct echo_connection *connection) {
    struct watch *watch = connection->watch;
    event_del(&watch->writing);
    event_add(&watch->reading, NULL);
}

static void write_instead(struct echo_connection *connection) {
    struct watch *watch = connection->watch;
    event_del(&watch->reading);
    event_add(&watch->writing, NULL);
}

static void forget(struct echo_connection *connection) {
    struct watch *watch = connection->watch;
    event_del(&watch->reading);
    event_del(&watch->writing);
    free(watch);
}

static void run(void) { event_base_dispatch(base); }

int main(int argc, char **argv) {
    struct echo_peer peer = {prepare, watch, read_again, write_instead, forget, run};
    return run_echo(&peer, argc, argv);
}
