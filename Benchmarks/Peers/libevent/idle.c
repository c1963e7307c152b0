// idle-libevent [SECONDS]  One timer.

#include "workloads.h"

#include <event2/event.h>

static void fired(evutil_socket_t descriptor, short what, void *context) { (void)descriptor, (void)what, (void)context; }

int main(int argc, char **argv) {
    struct event_base *base = event_base_new();
    int wait = idle_milliseconds(argc, argv);
    struct timeval time = {wait / 1000, wait % 1000 * 1000};
    event_base_once(base, -1, EV_TIMEOUT, fired, NULL, &time);
    event_base_dispatch(base);
}
