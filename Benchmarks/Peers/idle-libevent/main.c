// libevent with one timer of 10 ms, and the end.

#include <event2/event.h>

static void fired(evutil_socket_t descriptor, short what, void *context) { (void)descriptor, (void)what, (void)context; }

int main(void) {
    struct event_base *base = event_base_new();
    struct timeval ten = {0, 10000};
    event_base_once(base, -1, EV_TIMEOUT, fired, NULL, &ten);
    event_base_dispatch(base);
}
